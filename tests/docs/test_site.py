"""The documentation: its links lead somewhere, and it becomes a site that holds every key."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import foster
from foster.settings.base import keys_for
from foster.settings.experiment import Settings

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG")),
    *sorted((ROOT / "docs").glob("*.md")),
]
PUBLIC = [name for name in foster.__all__ if not name.startswith("_")]
LINK = re.compile(r"\]\(([^)\s]+)\)")


def anchors(page: Path) -> set[str]:
    """What a heading is called in an address."""
    heads = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_of_a_page_leads_to_a_file_and_a_heading(page: Path):
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for link in LINK.findall(text):
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), f"{page.name} links to '{link}', which is not there"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{page.name} links to '{link}', but there is no such heading"


def test_every_page_of_the_documentation_is_listed_in_its_index():
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    others = {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md", "api.md"}
    assert not [name for name in others if f"({name})" not in index]


def test_every_public_name_stands_on_the_page_of_python_and_what_it_shows_is_there():
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    shown = re.findall(r"^::: foster\.(\w+)$", page, re.MULTILINE)
    assert sorted(shown) == sorted([*PUBLIC, "events"])
    chosen = re.compile(r"^::: foster\.(\w+)\n    options:\n      members: \[(.*?)\]$", re.MULTILINE | re.DOTALL)
    for name, members in chosen.findall(page):
        owner = getattr(foster, name)
        known = {*dir(owner), *getattr(owner, "model_fields", ()), *owner.__annotations__}
        assert not [member for member in re.split(r",\s+", members) if member not in known], name


class Links(HTMLParser):
    """The addresses and ids of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.links.append(value)
            if name == "id" and value:
                self.ids.add(value)


@pytest.mark.slow
def test_the_site_is_built_without_a_warning_and_its_links_lead_somewhere(tmp_path: Path):
    pytest.importorskip("mkdocs", reason="mkdocs is not installed (the extra docs)")
    pytest.importorskip("mkdocstrings", reason="mkdocstrings is not installed (the extra docs)")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    pages = {path: Links(path.read_text(encoding="utf-8")) for path in tmp_path.glob("*.html")}
    made = {
        "index.html",
        "results.html",
        "notebook.html",
        "contributing.html",
        "changelog.html",
        "keys.html",
        "api.html",
    }
    assert made <= {path.name for path in pages}
    for path, page in pages.items():
        for link in page.links:
            address = urlsplit(link)
            if address.scheme or address.netloc or path.name == "404.html":
                continue
            target = (path.parent / unquote(address.path)).resolve() if address.path else path
            target = target / "index.html" if target.is_dir() else target
            assert target.exists(), f"{path.name} links to '{link}'"
            if address.fragment and target in pages:
                assert unquote(address.fragment) in pages[target].ids, f"{path.name} links to '{link}'"
    keys = (tmp_path / "keys.html").read_text(encoding="utf-8")
    assert not [key for key in keys_for(Settings) if key.count(".") < 2 and f"<code>{key}</code>" not in keys]
    python = (tmp_path / "api.html").read_text(encoding="utf-8")
    assert not [name for name in PUBLIC if f">foster.{name}<" not in python]
