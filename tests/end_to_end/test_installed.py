"""The package as users have it: the wheel in an environment of its own, outside the repository."""

import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
import venv
import zipfile
from pathlib import Path

import httpx
import pytest
from servers import SECONDS, photo

ROOT = Path(__file__).parents[2]
PARTS = ("src", "pyproject.toml", "README.md", "LICENSE")
BUILD = """
import os, tarfile
from setuptools.build_meta import build_sdist, build_wheel
name = build_sdist(".")
tarfile.open(name).extractall(".", filter="data")
os.chdir(name.removesuffix(".tar.gz"))
build_wheel("..")
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the source archive as `make build` does, in one process, and of a copy of the repository."""
    source = tmp_path_factory.mktemp("source")
    for name in PARTS:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copyfile(ROOT / name, source / name)
    done = subprocess.run([sys.executable, "-c", BUILD], cwd=source, capture_output=True, text=True, env=outside())
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = source.glob("foster_cil-*.whl")
    return found


@pytest.fixture(scope="module")
def command(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`foster` of an empty environment in which the wheel is installed; what it depends on is lent by this one."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-compile", "--no-deps"]
    subprocess.run([*install, "--no-index", wheel], check=True, env=outside())
    (packages,) = folder.glob("lib/python*/site-packages")
    # Files of this kind inside the lent folder are not read, so that the repository itself stays out of sight.
    (packages / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin" / "foster"


def outside() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"OMP_NUM_THREADS": "1"}


def test_the_wheel_holds_everything_that_is_no_python(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    package = ROOT / "src" / "foster"
    wanted = {
        f"foster/{path.relative_to(package).as_posix()}"
        for path in package.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert wanted <= names, wanted - names
    assert not [name for name in names if name.startswith("tests")]


@pytest.mark.slow
def test_the_installed_command_runs_the_demo(command: Path, tmp_path: Path) -> None:
    run = subprocess.run(
        [command, "demo"],
        cwd=tmp_path,
        env=outside(),
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    assert "Fine-tuning ends at" in run.stdout
    assert (tmp_path / "runs" / "demo" / "accuracy.png").exists()


def test_the_installed_command_finds_its_files(command: Path, tmp_path: Path) -> None:
    shown = subprocess.run(
        [command, "list", "presets", "digits"], cwd=tmp_path, env=outside(), capture_output=True, text=True
    )
    assert shown.returncode == 0, shown.stderr
    assert 'dataset = "digits"' in shown.stdout


@pytest.mark.slow
def test_the_installed_command_serves(command: Path, small_bundle: Path, tmp_path: Path) -> None:
    said = tmp_path / "said.txt"
    with said.open("w") as output:
        given = [command, "serve", small_bundle, "--port", "0", "--device", "cpu"]
        server = subprocess.Popen(given, cwd=tmp_path, env=outside(), stderr=output)
    try:
        until = time.monotonic() + SECONDS
        while not (found := re.search(r"at (http://\S+)", said.read_text())):
            assert time.monotonic() < until, said.read_text()
            assert server.poll() is None, said.read_text()
            time.sleep(0.02)
        assert "foster" in httpx.get(found[1]).text
        assert httpx.post(f"{found[1]}/predict", content=photo()).json()["predictions"][0]["label"]
        server.send_signal(signal.SIGTERM)
        assert server.wait(SECONDS) == 128 + signal.SIGTERM
    finally:
        server.kill()
        server.wait()
