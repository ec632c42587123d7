"""The version of foster, and the commit that it comes from."""

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
    """The commit of the package, and whether its files differ from it; None if that is not known."""

    commit: str | None = None
    is_changed: bool | None = None


def _version() -> str:
    project = PACKAGE.parents[1] / "pyproject.toml"
    if PACKAGE.parent.name == "src" and project.is_file():
        return str(tomllib.loads(project.read_text(encoding="utf-8"))["project"]["version"])
    return metadata.version(NAME)


__version__ = _version()


@cache
def source() -> Source:
    """The commit from git if the package is in a checkout, else the one that pip recorded at installation (PEP 610)."""
    if (
        _git("ls-files", "--error-unmatch", "version.py") is not None
    ):  # in a checkout of another project, git does not track it
        commit, changes = _git("rev-parse", "HEAD"), _git("status", "--porcelain", "--", ".")
        return Source(commit, None if changes is None else bool(changes))
    try:
        recorded = metadata.distribution(NAME).read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        recorded = None
    commit = json.loads(recorded).get("vcs_info", {}).get("commit_id") if recorded else None
    return Source(commit, False) if commit else Source()


def _git(*arguments: str) -> str | None:
    """The output of git in the folder of the package; None if it fails."""
    # Git refuses a checkout of another user, which protects nothing here: its code is already running.
    command = ["git", "-C", str(PACKAGE), "-c", "safe.directory=*", *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
