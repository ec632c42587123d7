"""The commands for a bundle in use: what keeps a server from starting."""

import socket
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
from commands import Command

from foster.errors import SettingsError
from foster.serving import run
from foster.serving.options import Options


def test_every_option_reaches_the_server(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[Options] = []
    monkeypatch.setattr(run, "serve", served.append)
    words = ["--host", "::1", "--port", 1, "--token", "secret", "--feedback", tmp_path, "--to-label", tmp_path / "new"]
    limits = ["--max-mib", 3, "--max-waiting", 4, "--batch-size", 5, "--timeout", 6.5]
    assert command("serve", "bundles", *words, *limits, "--unknown", 0.25, "--device", "cpu").code == 0
    folders = Path("bundles"), "::1", 1, "secret", tmp_path, tmp_path / "new"
    assert served == [Options(*folders, "cpu", 0.25, 3 * 2**20, 4, 5, 6.5)]


def test_what_keeps_a_server_from_starting_is_one_line(
    command: Command, small_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def problem(*words: object) -> str:
        done = command("serve", *words)
        assert done.code == 2
        (line,) = [line for line in done.err.splitlines() if "warning" not in line]
        return line

    assert f"'{tmp_path / 'nothing'}'" in problem(tmp_path / "nothing", "--port", 0)
    assert "foster promote" in problem(tmp_path, "--port", 0)
    (tmp_path / "current").symlink_to("gone")
    assert "no folder behind the link" in problem(tmp_path, "--port", 0)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"127.0.0.1:{port}" in problem(small_bundle, "--port", port)
    nowhere = "--host", "no.such.host.invalid"
    assert "no.such.host.invalid" in problem(small_bundle, *nowhere)
    assert "warning: anybody" in command("serve", small_bundle, *nowhere).err
    assert "warning: anybody" not in command("serve", small_bundle, *nowhere, "--token", "secret").err
    assert "--feedback" in problem(small_bundle, "--to-label", tmp_path)
    assert f"'{tmp_path / 'nothing'}'" in problem(
        small_bundle, "--feedback", tmp_path / "f", "--to-label", tmp_path / "nothing"
    )
    assert f"'{small_bundle}'" in problem(small_bundle, "--feedback", small_bundle / "feedback")
    monkeypatch.chdir(small_bundle.parent)
    assert "keep feedback" in problem(small_bundle.name, "--feedback", f"{small_bundle.name}/feedback", *nowhere)
    for wrong in ("never", "1.5", "nan"):
        assert f"'{wrong}'" in problem(small_bundle, "--unknown", wrong)
    refusal = Mock(side_effect=SettingsError("not today"))
    monkeypatch.setattr("foster.serving.served.Served.load", refusal)
    assert "not today" in problem(small_bundle, "--port", 0, "--device", "cpu", "--unknown", 0.25)
    assert refusal.call_args.args[1:] == ("cpu", 0.25)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert "foster-cil[serve]" in problem(small_bundle)
