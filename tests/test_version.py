"""Which version and which commit a result comes from, in a checkout and where the package is installed."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import foster

PACKAGE = Path(foster.__file__).parent
ASK = "import json; from foster.version import __version__, source; print(json.dumps([__version__, *source()]))"


def install(folder: Path, direct_url: object) -> None:
    """What `pip install --target FOLDER` leaves of a package of two files."""
    (folder / "foster").mkdir(parents=True)
    for name in ("__init__.py", "version.py"):
        shutil.copy(PACKAGE / name, folder / "foster")
    info = folder / "foster_cil-7.8.9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: foster-cil\nVersion: 7.8.9\n")
    (info / "direct_url.json").write_text(json.dumps(direct_url))


def told_by(path: Path) -> list[object]:
    """Version, commit and whether it was changed, as a new process finds them."""
    environment = os.environ | {"PYTHONPATH": str(path)}
    told: list[object] = json.loads(subprocess.check_output([sys.executable, "-c", ASK], env=environment))
    return told


def git(folder: Path, *arguments: str) -> str:
    names = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    return subprocess.check_output(["git", "-C", folder, *names, *arguments], text=True).strip()


def test_an_installed_package_tells_the_commit_that_pip_installed(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")  # a project of the user's, in which foster is installed
    install(tmp_path / "target", {"url": "file:///foster", "vcs_info": {"vcs": "git", "commit_id": "abc123"}})
    install(tmp_path / "wheel", {"url": "file:///foster.whl", "archive_info": {}})
    assert told_by(tmp_path / "target") == ["7.8.9", "abc123", False]
    assert told_by(tmp_path / "wheel") == ["7.8.9", None, None]


def test_a_checkout_tells_its_commit_and_whether_the_package_was_changed(tmp_path: Path) -> None:
    source = tmp_path / "src"
    (source / "foster").mkdir(parents=True)
    for name in ("__init__.py", "version.py"):
        shutil.copy(PACKAGE / name, source / "foster")
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "foster-cil"\nversion = "4.5.6"\n')
    (tmp_path / ".gitignore").write_text("__pycache__/\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "All.")
    commit = git(tmp_path, "rev-parse", "HEAD")
    (tmp_path / "notes.txt").write_text("Beside the package.")
    assert told_by(source) == ["4.5.6", commit, False]
    (source / "foster" / "more.py").write_text("")
    assert told_by(source) == ["4.5.6", commit, True]
