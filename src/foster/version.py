"""Which foster this is: its version, and the commit that it comes from."""

import json
import subprocess
import tomllib
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

NAME = "foster-cil"
PACKAGE = Path(__file__).resolve().parent


class Source(NamedTuple):
    """The commit of the package, and whether its files differ from it; None where that is not known."""

    commit: str | None = None
    is_changed: bool | None = None


def _distribution() -> metadata.Distribution | None:
    """The installed distribution that this package is part of: another one may lie elsewhere on the path."""
    for found in metadata.distributions(name=NAME):
        if Path(str(found.locate_file("foster"))).resolve() == PACKAGE:
            return found
    return None


def _version() -> str:
    project = PACKAGE.parents[1] / "pyproject.toml"
    if PACKAGE.parent.name == "src" and project.is_file():
        return str(tomllib.loads(project.read_text(encoding="utf-8"))["project"]["version"])
    distribution = _distribution()
    return distribution.version if distribution else "0+unknown"


__version__ = _version()


@cache
def source() -> Source:
    """From git where the package lies in a checkout, else from what pip noted when it installed a commit."""
    return _of_checkout() or _of_installation() or Source()


def _of_checkout() -> Source | None:
    if _git("ls-files", "--error-unmatch", "version.py") is None:
        return None  # no checkout, or that of a project in which foster is installed
    commit, changes = _git("rev-parse", "HEAD"), _git("status", "--porcelain", "--", ".")
    return Source(commit, None if changes is None else bool(changes))


def _git(*arguments: str) -> str | None:
    """What git says in the folder of the package; None where it fails."""
    # Whoever owns the checkout: its code is being run already.
    command = ["git", "-C", str(PACKAGE), "-c", "safe.directory=*", *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def _of_installation() -> Source | None:
    distribution = _distribution()
    noted = distribution.read_text("direct_url.json") if distribution else None  # PEP 610
    commit = json.loads(noted).get("vcs_info", {}).get("commit_id") if noted else None
    return Source(commit, False) if commit else None
