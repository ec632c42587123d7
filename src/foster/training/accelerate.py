"""Compiled backbones that survive growth: one compilation for each kind of backbone, shared by all its instances."""

import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from foster.networks.network import Backbone

_compiled_stages: dict[type[Backbone], Callable[..., Any]] = {}


def compiled_stages(kind: type[Backbone]) -> Callable[..., Any]:
    """`kind.stages`, compiled once: `(backbone, images) -> maps`. The weights are inputs of the compiled code, so a
    new backbone of the same shape reuses it."""
    if kind not in _compiled_stages:
        _compiled_stages[kind] = torch.compile(kind.stages, dynamic=False, fullgraph=True)
    return _compiled_stages[kind]


@contextmanager
def compiled_backbones(modules: Iterable[nn.Module], is_wanted: bool) -> Iterator[Callable[[bool], None]]:
    """Inside, all backbones in `modules` run compiled. Yields a switch: `switch(False)` makes them run as written."""
    backbones = [part for module in modules for part in module.modules() if isinstance(part, Backbone)]

    def switch(is_on: bool) -> None:
        for backbone in backbones:
            backbone.__dict__.pop("stages", None)
            if is_on and is_wanted:
                backbone.__dict__["stages"] = functools.partial(compiled_stages(type(backbone)), backbone)

    switch(True)
    try:
        yield switch
    finally:
        switch(False)
