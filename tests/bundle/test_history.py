"""What the entries of a bundle's history say."""

from foster.bundle.history import last_checks

ROW = {"images": 3, "before": 90.0, "after": None, "negative_flips": 1}
LEARNED = {"source": "january", "new_classes": ["cat", "dog", "cow"]}


def test_the_last_comparison_is_told_as_it_was_made() -> None:
    learned = {**LEARNED, "checks": {"held-out": {"classes": {"cat": ROW, "dog": ROW}}}}
    merged = {"renamed": {"cat": "pet", "dog": "pet"}}
    assert last_checks([learned, merged]) == {"held-out": {"cat": ROW, "dog": ROW}}, "not one of them as the new class"
    assert last_checks([learned, {"forgotten": ["dog"], "checks": {}}]) == {}
