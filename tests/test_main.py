"""The module is the command."""

from pathlib import Path

from commands import python


def test_the_module_is_the_command_and_its_errors_are_one_line_with_exit_code_2(tmp_path: Path) -> None:
    done = python("-m", "foster", "run", "digitz", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == "foster: unknown preset 'digitz'; did you mean 'digits'? (a settings file ends in .toml)\n"
    assert list(tmp_path.iterdir()) == []
