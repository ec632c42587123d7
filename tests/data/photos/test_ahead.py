"""What is computed ahead comes in order, with its errors where they happened, and ends when nobody wants it."""

import threading
from collections.abc import Iterator

import pytest

from foster.data.photos.ahead import Ahead


def test_items_are_computed_before_anybody_asks_and_come_in_order() -> None:
    made = threading.Event()

    def items() -> Iterator[int]:
        yield from range(5)
        made.set()

    ahead = Ahead(items())
    assert made.wait(timeout=60)
    assert list(ahead) == [0, 1, 2, 3, 4]


def test_an_error_is_raised_after_the_items_before_it() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ValueError("a broken lens")

    found = iter(Ahead(items()))
    assert next(found) == 1
    with pytest.raises(ValueError, match="a broken lens"):
        next(found)


def test_what_is_cancelled_ends_after_the_item_in_hand_and_closes_its_generator() -> None:
    may_go_on, is_closed = threading.Event(), threading.Event()

    def items() -> Iterator[int]:
        try:
            may_go_on.wait(timeout=60)
            while True:
                yield 1
        finally:
            is_closed.set()

    ahead = Ahead(items())
    ahead.cancel()
    may_go_on.set()
    assert is_closed.wait(timeout=60)
    assert list(ahead) == []
