"""Numbers of things in words."""

import pytest

from foster.system.counts import counted


@pytest.mark.parametrize(
    ("number", "thing", "text"),
    [
        (1, "new class", "1 new class"),
        (0, "class", "0 classes"),
        (0, "step", "0 steps"),
        (2, "held-out image", "2 held-out images"),
        (1200, "step", "1,200 steps"),
    ],
)
def test_the_last_word_has_its_plural(number: int, thing: str, text: str) -> None:
    assert counted(number, thing) == text
