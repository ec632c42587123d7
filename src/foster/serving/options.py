"""How a bundle is served: addresses, folders and limits."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

MEBIBYTE = 2**20


@dataclass(frozen=True)
class Options:
    """How a bundle is served. Sizes are in bytes and times in seconds."""

    path: Path
    """A bundle, the link `current`, or a folder of bundles with such a link."""
    host: str = "127.0.0.1"
    port: int = 8000
    token: str = field(default="", repr=False)
    """The token that every request except /health must carry; empty for none."""
    allowed_hosts: tuple[str, ...] = ()
    """Names under which the server may be called without a token, besides localhost and addresses."""
    feedback: Path | None = None
    max_feedback_bytes: int | None = None
    to_label: Path | None = None
    """A folder of photos that the page offers to be labelled."""
    device: str = "auto"
    unknown_below: float | Literal["auto"] | None = None
    """A photo is unknown below this confidence; "auto" uses the bundle's own test for unknown photos."""
    max_bytes: int = 20 * MEBIBYTE
    """The largest body of a request."""
    max_waiting: int = 256
    """How many images may be in work or waiting; more are refused."""
    batch_size: int = 64
    batch_window: float = 0.003
    """How long the first image of a batch waits for others that are on their way."""
    timeout: float = 30.0

    @property
    def max_held_bytes(self) -> int:
        """How many bytes of all bodies together may be held."""
        return max(16 * self.max_bytes, 256 * MEBIBYTE)
