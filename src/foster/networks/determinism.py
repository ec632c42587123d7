"""An operation that cannot give the same numbers twice gets one line, where the same numbers were asked for."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

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
