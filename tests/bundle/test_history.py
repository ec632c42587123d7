"""Entries of a bundle's history: kept as they are, and checked where something is known of them."""

from typing import Any

import pytest

from foster.bundle.history import checked_entry, entry_title, last_checks

ROW = {"images": 3, "before": 90.0, "after": None, "negative_flips": 1}
CHECK = {"classes": {"cat": ROW}}


@pytest.mark.parametrize(
    "entry",
    [{}, {"of a later version": [1, 2]}, {"new_classes": ["cat"], "seconds": 2.5, "checks": {"held-out": CHECK}}],
)
def test_an_entry_is_given_back_as_it_is(entry: dict[str, Any]) -> None:
    assert checked_entry(entry) is entry


@pytest.mark.parametrize(
    ("entry", "place"),
    [
        ({"new_classes": "cat"}, "new_classes"),
        ({"trained_images": -1}, "trained_images"),
        ({"held_out_share": 1.5}, "held_out_share"),
        ({"more_of": {"cat": "many"}}, "more_of"),
        ({"checks": {"elsewhere": CHECK}}, "checks"),
        ({"checks": {"exemplar": {"known_after": 101.0}}}, "known_after"),
        ({"checks": {"exemplar": {"classes": {"cat": {"images": 3}}}}}, "cat"),
        ({"checks": {"exemplar": {"classes": {"cat": {**ROW, "after": 100.5}}}}}, "after"),
        ({"checks": {"exemplar": {"classes": {"cat": {**ROW, "before": -1}}}}}, "before"),
        ({"removed_photos": "three"}, "removed_photos"),
    ],
)
def test_what_is_known_and_has_another_form_is_named(entry: dict[str, Any], place: str) -> None:
    with pytest.raises(ValueError, match=place):
        checked_entry(entry)


LEARNED = {"source": "january", "new_classes": ["cat", "dog", "cow"]}


@pytest.mark.parametrize(
    ("entry", "title"),
    [
        (LEARNED, "january"),
        ({"renamed": {"cat": "tiger"}}, "renamed cat to tiger"),
        ({"renamed": {"cat": "pet", "dog": "pet"}}, "merged cat, dog into pet"),
        ({"forgotten": ["cat", "dog"]}, "forgot cat, dog"),
        ({}, ""),
    ],
)
def test_an_entry_says_what_was_learned_or_mended(entry: dict[str, Any], title: str) -> None:
    assert entry_title(entry) == title


def test_the_last_comparison_is_told_as_it_was_made() -> None:
    learned = {**LEARNED, "checks": {"held-out": {"classes": {"cat": ROW, "dog": ROW}}}}
    merged = {"renamed": {"cat": "pet", "dog": "pet"}}
    assert last_checks([learned, merged]) == {"held-out": {"cat": ROW, "dog": ROW}}, "not one of them as the new class"
    assert last_checks([learned, {"forgotten": ["dog"], "checks": {}}]) == {}
