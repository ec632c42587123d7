"""What the entries of a bundle's history say."""

from foster.bundle.history import last_checks, without_names

ROW = {"images": 3, "before": 90.0, "after": None, "negative_flips": 1}
LEARNED = {"source": "january", "new_classes": ["cat", "dog", "cow"]}


def test_the_last_comparison_is_told_as_it_was_made() -> None:
    learned = {**LEARNED, "checks": {"held-out": {"classes": {"cat": ROW, "dog": ROW}}}}
    merged = {"renamed": {"cat": "pet", "dog": "pet"}}
    assert last_checks([learned, merged]) == {"held-out": {"cat": ROW, "dog": ROW}}, "not one of them as the new class"
    assert last_checks([learned, {"forgotten": ["dog"], "checks": {}}]) == {}


def test_a_class_that_has_an_earlier_name_of_a_forgotten_one_stays() -> None:
    history = [{"new_classes": ["cat"]}, {"renamed": {"cat": "pet"}}, {"new_classes": ["cat", "cow"]}]
    assert without_names(history, ["pet"], ["cat", "cow"])[-1] == {"new_classes": ["cat", "cow"]}
    assert without_names(history, ["pet"], ["cow"])[-1] == {"new_classes": ["cow"]}
