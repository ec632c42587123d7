"""What the documentation names is there, and its prose has lines that fit beside each other."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_test_that_the_page_on_robustness_names_exists() -> None:
    text = (ROOT / "docs" / "robustness.md").read_text(encoding="utf-8")
    names = set(re.findall(r"`([\w/]*test_\w+\.py)`", text))
    assert len(names) > 15
    folders = (ROOT / "tests" / "robustness", ROOT / "tests")
    assert [name for name in sorted(names) if not any((folder / name).is_file() for folder in folders)] == []


def test_prose_has_lines_of_120_characters_at_most() -> None:
    too_long = []
    for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")):
        prose = re.sub(r"^ *```.*?^ *```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        too_long += [f"{page.name}: {line}" for line in prose.split("\n") if len(line) > 120 and line[0] != "|"]
    assert too_long == []
