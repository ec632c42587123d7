"""Pages of the site that are made from other files: CONTRIBUTING, CHANGELOG, the notebook, the settings."""

import json
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent

MOVED = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "notebook.ipynb": "notebook.md",
}
"""Where a site has what lies elsewhere in the repository."""

LINK = re.compile(r"\[([^\]]+)\]\(((?!https?:)[^)#]+)(#[^)]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    contributing, changelog = (
        (ROOT / name).read_text(encoding="utf-8") for name in ("CONTRIBUTING.md", "CHANGELOG.md")
    )
    pages = {
        "contributing.md": contributing,
        "changelog.md": changelog,
        "notebook.md": _notebook(),
        "keys.md": _keys(),
    }
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The README begins the first page; links to what lies beside the documentation lead to its page, or nowhere."""
    if page.file.src_uri == "README.md":
        readme = (ROOT / "README.md").read_text(encoding="utf-8")
        markdown = readme.partition("## Documentation")[0] + markdown.replace("# Documentation", "## Documentation")
    return LINK.sub(_link, markdown)


def _link(found: re.Match[str]) -> str:
    name, anchor = re.sub("^(../)?(docs/)?", "", found[2]), found[3] or ""
    if target := MOVED.get(name):
        return f"[{found[1]}]({target})"
    is_page = name.endswith((".md", ".png", ".py")) and (ROOT / "docs" / name).exists()
    return f"[{found[1]}]({name}{anchor})" if is_page else found[1]


def _notebook() -> str:
    """Its texts, and its code as blocks."""
    cells = json.loads((ROOT / "docs" / "notebook.ipynb").read_text(encoding="utf-8"))["cells"]
    texts = [("".join(cell["source"]), cell["cell_type"] == "code") for cell in cells]
    return "\n\n".join(f"```python\n{text}\n```" if is_code else text for text, is_code in texts) + "\n"


def _keys() -> str:
    from foster.settings.augmentation import Augmentation
    from foster.settings.experiment import Settings
    from foster.settings.fit import FitSettings
    from foster.settings.learner import LearnerSettings
    from foster.settings.methods import METHOD_SETTINGS

    parts = [
        "# Every setting",
        "Keys of settings files and of `KEY=VALUE` on the command line. This page is generated.",
        "A default of – is none. A key without a default must be given, as every preset does.",
        _table("`foster run`", Settings),
        *(_table(f"`{name}`", model, f"{name}.") for name, model in _tables(Settings).items()),
        _table("`foster learn`", LearnerSettings),
        _table("Schedules, such as `foster.boost`", FitSettings),
        _table("`augmentation`", Augmentation, "augmentation."),
    ]
    parts += [_table(f"`{name}`", settings, f"{name}.") for name, settings in METHOD_SETTINGS.items()]
    return "\n\n".join(parts) + "\n"


def _tables(model: Any) -> dict[str, Any]:
    """The keys of a model that are tables of their own, but for the method's."""
    fields = {name: field.annotation for name, field in model.model_fields.items() if name != "options"}
    return {name: found for name, found in fields.items() if hasattr(found, "model_fields")}


def _table(title: str, model: Any, prefix: str = "") -> str:
    from foster.settings.fit import FitSettings

    rows = [f"## {title}", *([" ".join(model.__doc__.split())] if model.__doc__ else [])]
    lines = ["| key | default | meaning |", "| --- | --- | --- |"]
    for name, field in model.model_fields.items():
        if name == "options" or (name in _tables(model) and not prefix):
            continue
        default = "" if field.is_required() else _default(field.get_default(call_default_factory=True))
        is_schedule = field.annotation is FitSettings
        text = "A [schedule](#schedules-such-as-fosterboost)." if is_schedule else field.description or ""
        meaning = " ".join(text.split()).replace("|", "\\|")
        lines.append(f"| `{prefix}{name}` | {default} | {meaning} |")
    return "\n\n".join([*rows, "\n".join(lines)])


def _default(value: Any) -> str:
    """As it is written on the command line; of a schedule, what is not as in every schedule."""
    from foster.settings.toml import value_text

    if hasattr(value, "model_dump"):
        parts = value.model_dump(exclude_defaults=True).items()
        return " ".join(f"`{key}={value_text(part)}`" for key, part in parts) or "–"
    text = "" if value is None else value if isinstance(value, str) else value_text(value)
    return f"`{text}`".replace("|", "\\|") if text else "–"
