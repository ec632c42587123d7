"""Pages that mkdocs makes from the README, the settings and the public names, so that nothing is told twice."""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent

FROM_README = {
    "quick-start.md": ("Quick start", "Nothing is lost"),
    "experiments.md": ("The paper's experiments", "How it is fast"),
    "photos.md": ("Your own photos: learn, save, load, learn more, predict, ship",),
}
"""The pages that are sections of the README."""


def on_files(files: Files, config: Any) -> Files:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    pages = {name: "\n".join(_section(readme, title) for title in titles) for name, titles in FROM_README.items()}
    pages["keys.md"] = _keys()
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The public names in their place; links to files that lie beside the documentation lead to the page that tells the
    same, or nowhere."""
    markdown = markdown.replace("PUBLIC NAMES", "\n\n".join(f"::: {home}" for home in _public()))
    markdown = markdown.replace("](../README.md)", "](quick-start.md)").replace("](docs/", "](")
    markdown = re.sub(r"\[([^\]]+)\]\((?:\.\./[^)]*|[\w./-]*\.ipynb|LICENSE|C[A-Z]+\.md)\)", r"\1", markdown)
    return markdown.replace("`notebook.ipynb`", "notebook.ipynb")


def _public() -> list[str]:
    """Where everything is defined that `import foster` offers."""
    import foster

    objects = [getattr(foster, name) for name in foster.__all__ if not name.startswith("_")]
    objects.sort(key=lambda one: isinstance(one, type) and issubclass(one, Exception))
    return list(dict.fromkeys(f"{one.__module__}.{one.__qualname__}" for one in objects))


def _section(readme: str, title: str) -> str:
    """A section with its heading; KeyError where the README has none of that title."""
    found = re.search(rf"^## {re.escape(title)}\n.*?(?=^## |\Z)", readme, re.MULTILINE | re.DOTALL)
    if found is None:
        raise KeyError(f"the README has no section '{title}' (docs/hooks.py)")
    return re.sub(r"^##", "#", found[0], flags=re.MULTILINE)


def _keys() -> str:
    from foster.settings.augmentation import Augmentation
    from foster.settings.experiment import Settings
    from foster.settings.fit import FitSettings
    from foster.settings.learner import LearnerSettings
    from foster.settings.methods import METHOD_SETTINGS

    parts = [
        "# Every key",
        "Keys of settings files and of `KEY=VALUE` on the command line, with their defaults. This page is generated.",
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
        text = "A schedule." if field.annotation is FitSettings else field.description or ""
        meaning = " ".join(text.split()).replace("|", "\\|")
        lines.append(f"| `{prefix}{name}` | {default} | {meaning} |")
    return "\n\n".join([*rows, "\n".join(lines)])


def _default(value: Any) -> str:
    if hasattr(value, "model_dump"):
        value = value.model_dump(exclude_defaults=True)
    value = list(value) if isinstance(value, tuple) else value
    text = " ".join(str(value).split()).replace("|", "\\|")
    return f"`{text}`" if text and value is not None else "–"
