"""Standard output and standard error as they may be, and what is shown there."""

import json

import pytest

from foster.system.output import echo, escaped, json_text, print_stderr, show


def test_a_complaint_is_one_printable_line_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    print_stderr("a bundle\nof '\x1b[31m' and '\ud800'")
    assert capsys.readouterr() == ("", "foster: a bundle of '\ufffd[31m' and '\ufffd'\n")


def test_text_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    show("a line", "and [another]")
    assert capsys.readouterr() == ("a line\nand [another]\n", "")


def test_lines_move_no_cursor_and_stay_lines(capsys: pytest.CaptureFixture[str]) -> None:
    echo("one\x1b[2J\ntwo\x9b", nl=False)
    assert capsys.readouterr().out == "one\ufffd[2J\ntwo\ufffd"


def test_json_is_printable_and_means_the_same() -> None:
    data = {"\x9b": ["\x1b", "\u732b", "\x7f", 1.5]}
    for text in (json_text(data), escaped(json.dumps(data, ensure_ascii=False))):
        assert json.loads(text) == data
        assert "\u732b" in text
        assert all(character.isprintable() or character == "\n" for character in text)
