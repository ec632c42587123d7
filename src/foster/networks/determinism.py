"""Operations that cannot give the same numbers twice, where the same numbers are asked for."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from foster.errors import SettingsError

_REFUSED = re.compile(r"^(\S+) does not have a deterministic implementation|is not deterministic because")
"""What torch says under `torch.use_deterministic_algorithms`."""


@contextmanager
def explained_indeterminism() -> Iterator[None]:
    """Turns torch's refusal of an operation into a SettingsError; only networks from outside have such operations."""
    try:
        yield
    except RuntimeError as error:
        refused = _REFUSED.search(str(error))
        if refused is None:
            raise
        operation = refused.group(1) or "a matrix product"
        raise SettingsError(
            f"engine.deterministic=true: {operation} cannot give the same numbers in every run on this device; "
            "use a backbone without it, or engine.deterministic=false"
        ) from None


@contextmanager
def any_operation() -> Iterator[None]:
    """Inside, every operation may be used: of what comes out, only the shape counts."""
    if not torch.are_deterministic_algorithms_enabled():
        yield  # the switch itself imports torch's compiler, which takes seconds
        return
    was_warning = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(False)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(True, warn_only=was_warning)
