"""What an error says: its own words on one line, and the name that was meant."""

from pathlib import Path

import pytest

from foster.errors import DataError, explained, suggestion, words_of


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ValueError("one\n  two\tthree"), "one two three"),
        (FileNotFoundError(2, "No such file or directory", "/x"), "No such file or directory"),
        (OSError("odd"), "odd"),
        (KeyError(), "KeyError"),
        (ValueError("x" * 300), "x" * 200),
    ],
)
def test_the_words_of_an_error_are_one_short_line(error: Exception, words: str) -> None:
    assert words_of(error) == words


def test_the_closest_choice_is_suggested_and_all_where_none_is_close() -> None:
    assert suggestion("resnet33", ["resnet32", "vgg"]) == "; did you mean 'resnet32'?"
    assert suggestion("perceptron", ["b", "a", "b"]) == "; choose from a, b"
    assert suggestion("x", []) == ""


def test_of_very_many_choices_some_are_listed() -> None:
    choices = [f"class {k:03d}" for k in range(1000)]
    assert suggestion("?", choices).endswith("class 039, ... (1000 in all)")


def test_what_the_operating_system_refuses_is_one_line_of_the_kind_that_is_asked_for() -> None:
    with (
        pytest.raises(DataError, match="cannot read 'it': No such file or directory"),
        explained(DataError, "cannot read 'it'"),
    ):
        Path("nowhere/at all").read_bytes()
    with pytest.raises(ZeroDivisionError), explained(DataError, "cannot divide"):
        print(1 / 0)
