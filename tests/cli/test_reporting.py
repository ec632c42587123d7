"""Commands that draw and report: what is refused in one line, before anything is read."""

from pathlib import Path

import pytest
from commands import Command


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("figure", "accuracy", "nothing"), "no file or folder 'nothing'"),
        (("figure", "accurcy", "nothing"), "did you mean 'accuracy'?"),
        (("figure", "accuracy", "nothing", "--out", "a.txt"), ".png"),
        (("report", "nothing"), "no file or folder 'nothing'"),
        (("report", "nothing", "--out", "report.pdf"), "cannot write report 'report.pdf': name a file that ends in .h"),
        (("report", "nothing", "--out", "."), "cannot write report '.'"),
        (("watch", "nothing"), "nothing"),
    ],
)
def test_what_cannot_be_drawn_or_watched_is_one_line(
    words: tuple[str, ...], message: str, command: Command, tmp_path: Path
) -> None:
    done = command(*words)
    assert done.code == 2
    assert done.err.startswith("foster: ")
    assert message in done.err
    assert done.err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_figure_is_written_where_it_was_asked_for(command: Command, write_run, tmp_path: Path) -> None:
    run = write_run("one", method="replay")
    done = command("figure", "accuracy", str(run), "--out", "mine.svg")
    assert done.code == 0, done.err
    assert done.out == "figure: mine.svg\n"
    assert "<svg" in (tmp_path / "mine.svg").read_text()
