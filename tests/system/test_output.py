"""Standard output and standard error as they may be, and what is shown there."""

import io
import json
from pathlib import Path

import pytest

from foster.reports.progress import progress_for
from foster.system.output import complain, echo, escaped, json_text, prepare_streams, report, show


def test_progress_without_standard_error_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", None)
    with progress_for() as listener:
        assert listener is not None


def test_a_complaint_is_one_printable_line_on_standard_error_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    complain("a bundle\nof '\x1b[31m' and '\ud800'")
    assert capsys.readouterr() == ("", "foster: a bundle of '\ufffd[31m' and '\ufffd'\n")
    monkeypatch.setattr("sys.stderr", None)
    complain("nobody hears this")
    assert capsys.readouterr().out == ""


def test_what_can_be_printed_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report("a line", "and [another]", path=tmp_path)
    show("the last")
    assert capsys.readouterr() == ("a line\nand [another]\nthe last\n", "")


def test_what_the_locale_cannot_encode_is_printed_as_escapes(monkeypatch: pytest.MonkeyPatch) -> None:
    content = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(content, encoding="latin-1"))
    prepare_streams()
    show("caf\xe9 \u732b \udcff \u2500\u2500 50 \u2013 60")
    assert content.getvalue() == b"caf\xe9 \\u732b \\ufffd -- 50 - 60\n"


def test_lines_move_no_cursor_and_stay_lines(capsys: pytest.CaptureFixture[str]) -> None:
    echo("one\x1b[2J\ntwo\x9b", nl=False)
    assert capsys.readouterr().out == "one\ufffd[2J\ntwo\ufffd"


def test_json_is_printable_and_means_the_same() -> None:
    data = {"\x9b": ["\x1b", "\u732b", "\x7f", 1.5]}
    for text in (json_text(data), escaped(json.dumps(data, ensure_ascii=False))):
        assert json.loads(text) == data
        assert "\u732b" in text
        assert all(character.isprintable() or character == "\n" for character in text)


def test_an_interruption_while_the_end_is_shown_is_told_what_is_saved(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*words: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("foster.system.output.show", interrupted)
    report("a line", path=Path("runs/x"))
    assert capsys.readouterr() == ("", "foster: interrupted; all is done and saved in 'runs/x'\n")
