"""Numbers of things in words."""

import pytest

from foster.system.counts import counted, duration, mean_and_spread, size_text


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


def test_durations_read_well():
    assert [duration(seconds) for seconds in (0.2, 59.4, 59.6, 200, 3599.6, 7500)] == [
        "0 s",
        "59 s",
        "1 min 00 s",
        "3 min 20 s",
        "1 h 00 min",
        "2 h 05 min",
    ]


def test_spread_needs_two_values():
    assert mean_and_spread([72.904]) == "72.90"
    assert mean_and_spread([70.0, 74.0]) == "72.00 ± 2.83"
    assert mean_and_spread([]) == "–"


def test_sizes_read_well():
    sizes = {0: "0 bytes", 1023: "1023 bytes", 1024: "1.0 KiB", 1536 * 1024: "1.5 MiB", 3 * 2**30: "3.0 GiB"}
    assert {size: size_text(size) for size in sizes} == sizes
    assert size_text(5 * 2**40) == "5120.0 GiB"
