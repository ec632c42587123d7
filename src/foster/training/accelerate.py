"""Compiled backbones that survive growth: one compilation for each kind of part, shared by all its instances."""

import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from foster.kernels import is_fused
from foster.kernels.folding import is_folded
from foster.networks.network import Backbone

NUM_VARIANTS = 64
"""Shapes and modes of one kind of part that may be compiled before torch gives up on it."""


@functools.cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """A method of a module, compiled once: `(module, maps) -> maps`. The weights are inputs of the compiled code, so
    another module of the same shape reuses it."""
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, NUM_VARIANTS)
    return torch.compile(function, dynamic=False, fullgraph=True)


@contextmanager
def compiled_backbones(modules: Iterable[nn.Module], is_wanted: bool) -> Iterator[Callable[[bool], None]]:
    """Inside, all backbones in `modules` run compiled, but for the parts that are kernels of our own. Yields a switch:
    `switch(False)` makes them run as written."""
    backbones = [part for module in modules for part in module.modules() if isinstance(part, Backbone)]
    replaced = [(part, name) for backbone in backbones for part, name in _compiled_methods(backbone) if is_wanted]
    is_compiled = False

    def switch(is_on: bool) -> None:
        nonlocal is_compiled
        if is_on == is_compiled:
            return
        is_compiled = is_on
        for part, name in replaced:
            part.__dict__.pop(name, None)
            if is_on:
                part.__dict__[name] = functools.partial(_compiled(getattr(type(part), name)), part)

    switch(True)
    try:
        yield switch
    finally:
        switch(False)


def _compiled_methods(backbone: Backbone) -> list[tuple[nn.Module, str]]:
    """The methods to replace: those of the parts that the backbone names, or its own `stages`."""
    parts = backbone.compiled_parts()
    if not parts:
        return [(backbone, "stages")]
    return [(part, "forward") for part in parts if not (is_fused(part) or is_folded(part))]
