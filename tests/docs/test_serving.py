"""What docs/serving.md and deploy/ say is true."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.main import get_command

from foster.cli import app

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "serving.md").read_text()


def test_every_option_and_route_that_is_told_exists() -> None:
    commands = get_command(app).commands  # type: ignore[attr-defined]
    options = {
        flag for name in ("serve", "label-next", "learn") for part in commands[name].params for flag in part.opts
    }
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", TEXT)) - {"--data-binary"} <= options
    sources = "".join(path.read_text() for path in (ROOT / "src" / "foster" / "serving").glob("*.py"))
    routes = set(re.findall(r"`[^`\n]*?(/[a-z-]+)[^`\n]*`", TEXT.partition("## The API")[2].partition("```")[0]))
    assert {"/predict", "/explain", "/info", "/health", "/feedback", "/to-label"} <= routes
    assert {route for route in routes if f'"{route}' not in sources} <= {"/openapi"}


def test_the_unit_is_one_that_systemd_reads(tmp_path: Path) -> None:
    analyse = shutil.which("systemd-analyze")
    if not analyse:
        pytest.skip("no systemd-analyze")
    unit = (ROOT / "deploy" / "foster.service").read_text()
    assert "foster serve " in unit
    (tmp_path / "foster.service").write_text(
        unit.replace("/opt/foster/bin/foster", shutil.which("true") or "/bin/true")
    )
    done = subprocess.run([analyse, "verify", tmp_path / "foster.service"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_dockerfile_copies_files_that_are_there_and_starts_a_command_that_is_understood() -> None:
    text = (ROOT / "deploy" / "Dockerfile").read_text()
    lines = [line for line in text.replace("\\\n", " ").splitlines() if line and not line.startswith("#")]
    (copied,) = [line.split()[1:-1] for line in lines if line.startswith("COPY ")]
    assert (ROOT / copied[0]).exists()
    assert copied[1:] == ["dist/foster_cil-*.whl"]
    for line in lines:
        if line.startswith("RUN "):
            subprocess.run(["bash", "-n", "-c", line.removeprefix("RUN ")], check=True)
    (started,) = [re.findall(r'"([^"]*)"', line) for line in lines if line.startswith("CMD ")]
    commands = get_command(app).commands  # type: ignore[attr-defined]
    parsed = commands["serve"].make_context("serve", list(started))
    assert parsed.params["host"] == "0.0.0.0"
