"""The methods as text: what each does, its paper, and its settings."""

import textwrap

from foster.errors import SettingsError, suggestion
from foster.reports.results import CLASSIFIERS
from foster.settings import toml as toml_text
from foster.settings.fit import FitSettings
from foster.settings.methods import METHOD_SETTINGS
from foster.settings.plugins import load_plugins


def method_list() -> str:
    """One paragraph a method: name, one line, paper, classifier, settings."""
    load_plugins(())
    paragraphs = []
    for name, settings in METHOD_SETTINGS.items():
        keys = [key for key, field in settings.model_fields.items() if field.annotation is not FitSettings]
        schedules = [key for key, field in settings.model_fields.items() if field.annotation is FitSettings]
        details = [
            *([settings.paper] if settings.paper else []),
            f"classified by: {CLASSIFIERS[settings.classifies_by]}",
            f"augmentation of its published results: {settings.published_augmentation}",
            f"schedules: {', '.join(f'{name}.{key}' for key in schedules)}",
            *([f"settings: {', '.join(f'{name}.{key}' for key in keys)}"] if keys else []),
        ]
        lines = [textwrap.fill(f"{name:<10}{settings.summary}", 110, subsequent_indent=" " * 10)]
        lines += [textwrap.fill(text, 100, initial_indent=" " * 10, subsequent_indent=" " * 12) for text in details]
        paragraphs.append("\n".join(lines))
    paragraphs.append("'foster methods --show NAME' prints all settings, with their values and what they mean.\n")
    return "\n\n".join(paragraphs)


def method_settings_text(name: str) -> str:
    """All settings of one method with their default values, as TOML, and what they mean as comments."""
    load_plugins(())
    if name not in METHOD_SETTINGS:
        raise SettingsError(f"unknown method '{name}'{suggestion(name, METHOD_SETTINGS)}")
    text = toml_text.dumps({name: METHOD_SETTINGS[name]().model_dump(mode="json")})
    own, table, schedules = text.partition(f"\n[{name}.")
    fields = METHOD_SETTINGS[name].model_fields
    lines = []
    for line in own.splitlines():
        field = fields.get(line.partition(" = ")[0])
        meaning = " ".join(field.description.split()) if field and field.description else ""
        lines += [*textwrap.wrap(meaning, 100, initial_indent="# ", subsequent_indent="# "), line]
    return "\n".join(lines) + "\n" + table + schedules
