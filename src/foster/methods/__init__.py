"""Methods: one file each. The table of names and settings is `foster.settings.methods.METHOD_SETTINGS`."""

import importlib
from typing import Any

from foster.methods.base import Method

CLASSES: dict[str, str] = {
    "finetune": "foster.methods.finetune:Finetune",
    "replay": "foster.methods.replay:Replay",
    "lwf": "foster.methods.lwf:LearningWithoutForgetting",
    "icarl": "foster.methods.icarl:Icarl",
    "bic": "foster.methods.bic:BiasCorrection",
    "wa": "foster.methods.wa:WeightAlignment",
    "podnet": "foster.methods.podnet:Podnet",
    "coil": "foster.methods.coil:Coil",
    "der": "foster.methods.der:DynamicallyExpandable",
    "foster": "foster.methods.foster:Foster",
    "joint": "foster.methods.joint:Joint",
}
"""Where each method's class lives; imported when it is asked for."""


def method_class(name: str) -> type[Method[Any]]:
    module, _, attribute = CLASSES[name].partition(":")
    found: type[Method[Any]] = getattr(importlib.import_module(module), attribute)
    return found
