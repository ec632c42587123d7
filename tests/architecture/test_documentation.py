"""What the documentation names is there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_test_that_the_page_on_robustness_names_exists() -> None:
    text = (ROOT / "docs" / "robustness.md").read_text(encoding="utf-8")
    names = set(re.findall(r"`([\w/]*test_\w+\.py)`", text))
    assert len(names) > 15
    folders = (ROOT / "tests" / "robustness", ROOT / "tests")
    assert [name for name in sorted(names) if not any((folder / name).is_file() for folder in folders)] == []
