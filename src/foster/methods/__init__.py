"""Methods: one file each. The table of names and settings is `foster.method_settings.METHOD_SETTINGS`."""

import importlib

from foster.methods.base import Method

CLASSES: dict[str, str] = {
    "finetune": "foster.methods.finetune:Finetune",
    "replay": "foster.methods.replay:Replay",
    "foster": "foster.methods.foster:Foster",
}
"""Where each method's class lives; imported when it is asked for."""


def method_class(name: str) -> type[Method]:
    module, _, attribute = CLASSES[name].partition(":")
    found = getattr(importlib.import_module(module), attribute)
    assert issubclass(found, Method)
    return found
