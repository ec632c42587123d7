"""What a server can be told."""

from pathlib import Path

from foster.serving.options import MEBIBYTE, Options


def test_a_few_large_bodies_may_be_held_together_and_many_small_ones() -> None:
    assert Options(Path("v1"), max_bytes=MEBIBYTE).max_held_bytes == 256 * MEBIBYTE
    assert Options(Path("v1"), max_bytes=100 * MEBIBYTE).max_held_bytes == 1600 * MEBIBYTE


def test_a_token_is_never_shown() -> None:
    assert "secret" not in repr(Options(Path("v1"), token="secret"))
