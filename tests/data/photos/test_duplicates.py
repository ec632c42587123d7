"""Photos that are the same or nearly are found, and different ones are told apart."""

import io
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageEnhance
from rendered_photos import THINGS, rendered_photo

from foster.data.photos import duplicates
from foster.data.photos.duplicates import SIDE, Sketch, alike, sketch


@pytest.fixture(scope="module")
def photos() -> list[Image.Image]:
    """Different photos of twelve things, many on the same two backgrounds."""
    chance = np.random.default_rng(7)
    return [rendered_photo(thing, chance, (150, 100)) for thing in list(THINGS)[:12] for _ in range(3)]


def saved(photo: Image.Image, quality: int) -> Image.Image:
    file = io.BytesIO()
    photo.save(file, "JPEG", quality=quality)
    return Image.open(file).convert("RGB")


@pytest.mark.parametrize(
    "change",
    [
        lambda photo: saved(photo, 40),
        lambda photo: photo.resize((75, 50)),
        lambda photo: ImageEnhance.Brightness(photo).enhance(1.15),
        lambda photo: ImageEnhance.Contrast(photo).enhance(1.15),
        lambda photo: photo.crop((1, 1, 149, 99)),
    ],
    ids=["saved again", "smaller", "lighter", "more contrast", "a pixel cut off"],
)
def test_a_photo_is_found_again_and_taken_for_no_other(
    photos: list[Image.Image], change: Callable[[Image.Image], Image.Image], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duplicates, "COMPARED_AT_ONCE", 10)
    count = len(photos)
    groups = alike([sketch(photo) for photo in (*photos, *map(change, photos))])
    assert groups == [[k, count + k] for k in range(count)]


def test_equal_photos_are_one_group_however_many(photos: list[Image.Image]) -> None:
    groups = alike([sketch(photo) for photo in (photos[0], photos[1], photos[0], photos[0].copy())])
    assert groups == [[0, 2, 3]]
    assert alike([]) == alike([sketch(photos[0])]) == []


def test_a_group_grows_from_pair_to_pair_however_many_are_compared_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    shades = [Image.new("RGB", (40, 40 + k), (level,) * 3) for k, level in enumerate((20, 26, 90, 23, 29, 91))]
    for count in (256, 2, 1):
        monkeypatch.setattr("foster.data.photos.duplicates.COMPARED_AT_ONCE", count)
        assert alike([sketch(shade) for shade in shades]) == [[0, 1, 3, 4], [2, 5]]


def waves(*strengths: float) -> NDArray[np.float64]:
    """A thumbnail's levels: waves that have nothing in common, each with its standard deviation, around middle grey."""
    places = np.arange(SIDE) * 2 * np.pi / SIDE
    level = sum(strength * 2**0.5 * np.cos((k + 1) * places) for k, strength in enumerate(strengths))
    return np.broadcast_to(128 + np.asarray(level), (SIDE, SIDE))


def is_one_photo(one: NDArray[np.float64], other: NDArray[np.float64]) -> bool:
    pictures = [np.repeat(levels.round().astype(np.uint8)[..., None], 3, axis=2) for levels in (one, other)]
    return alike([Sketch(str(k), picture) for k, picture in enumerate(pictures)]) == [[0, 1]]


@pytest.mark.parametrize(("correlation", "is_same"), [(1.0, True), (0.99, True), (0.98, False), (0.9, False)])
def test_a_pattern_says_how_much_alike_photos_of_one_scene_are(correlation: float, is_same: bool) -> None:
    other = waves(20 * correlation, 20 * (1 - correlation**2) ** 0.5)
    assert is_one_photo(waves(20), other) is is_same
    assert is_one_photo(waves(20), other + 30) is is_same, "lighter or not"


@pytest.mark.parametrize(("levels", "is_same"), [(2, True), (3, True), (4, False)])
def test_where_there_is_hardly_a_pattern_levels_decide(levels: int, is_same: bool) -> None:
    assert is_one_photo(waves(5), waves(5) + levels) is is_same
    assert is_one_photo(waves(1), waves(0, 1)), "noise is no pattern"
    assert not is_one_photo(waves(7), waves(6.5, 2.5)), "more than noise is"
    assert is_one_photo(waves(5.9), waves(6.1)), "one of them with a pattern, the other without"
    assert not is_one_photo(waves(20), waves(5)), "the same, but of one of them hardly anything is left"
