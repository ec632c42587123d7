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
        lines = textwrap.wrap(settings.summary, 100) or [""]
        indented = [
            line
            for detail in details
            for line in textwrap.wrap(detail, 100, initial_indent=" " * 10, subsequent_indent=" " * 12)
        ]
        paragraphs.append("\n".join([f"{name:<10}{lines[0]}", *(" " * 10 + line for line in lines[1:]), *indented]))
    return (
        "\n\n".join(paragraphs)
        + "\n\n'foster methods --show NAME' prints all settings, with their values and what they mean.\n"
    )


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
