"""Standard output and standard error as they may be, and what is shown there."""

import io
import json
from pathlib import Path

import pytest

from foster.system.output import complain, echo, escape_what_cannot_be_encoded, escaped, json_text, report, show


def test_a_complaint_is_one_printable_line_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    complain("a bundle\nof '\x1b[31m' and '\ud800'")
    assert capsys.readouterr() == ("", "foster: a bundle of '\ufffd[31m' and '\ufffd'\n")


def test_what_the_locale_cannot_encode_is_printed_as_escapes(monkeypatch: pytest.MonkeyPatch) -> None:
    content = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(content, encoding="latin-1"))
    escape_what_cannot_be_encoded()
    show("caf\xe9 \u732b")
    assert content.getvalue() == b"caf\xe9 \\u732b\n"


def test_what_can_be_printed_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report("a line", "and [another]", path=tmp_path)
    show("the last")
    assert capsys.readouterr() == ("a line\nand [another]\nthe last\n", "")


def test_lines_move_no_cursor_and_stay_lines(capsys: pytest.CaptureFixture[str]) -> None:
    echo("one\x1b[2J\ntwo\x9b", nl=False)
    assert capsys.readouterr().out == "one\ufffd[2J\ntwo\ufffd"


def test_json_is_printable_and_means_the_same() -> None:
    data = {"\x9b": ["\x1b", "\u732b", "\x7f", 1.5]}
    for text in (json_text(data), escaped(json.dumps(data, ensure_ascii=False))):
        assert json.loads(text) == data
        assert "\u732b" in text
        assert all(character.isprintable() or character == "\n" for character in text)
