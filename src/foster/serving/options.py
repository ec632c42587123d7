"""How a bundle is served: addresses, folders and limits."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class Options:
    """Sizes are in bytes, times in seconds."""

    path: Path
    """A bundle, the link `current`, or a folder of bundles with such a link."""
    host: str = "127.0.0.1"
    port: int = 8000
    token: str = field(default="", repr=False)
    """The token that every request except /health must carry; empty for none."""
    feedback: Path | None = None
    """A folder for photos that users give a class."""
    to_label: Path | None = None
    """A folder of photos that the page offers for labelling."""
    device: str = "auto"
    unknown_below: float | Literal["auto"] | None = None
    """A photo is unknown below this confidence; "auto" uses the bundle's own test for unknown photos."""
    max_bytes: int = 20 * 2**20
    """The largest body of a request."""
    max_waiting: int = 256
    """How many images may be in progress or waiting; more are refused."""
    batch_size: int = 64
    timeout: float = 30.0
    """How long an answer may take."""
