"""The module is the command."""

import subprocess
import sys
from pathlib import Path

from commands import python


def test_the_module_is_the_command_and_its_errors_are_one_line_with_exit_code_2(tmp_path: Path) -> None:
    done = python("-m", "foster", "run", "digitz", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == "foster: unknown preset 'digitz'; did you mean 'digits'? (a settings file ends in .toml)\n"
    assert list(tmp_path.iterdir()) == []


LATE_INTERRUPTION = """
import atexit, os, signal, sys
from foster.__main__ import main
atexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))
sys.argv = ["foster", "--version"]
main()
"""


def test_a_ctrl_c_that_comes_after_all_is_said_changes_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", LATE_INTERRUPTION], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("foster ")
