"""What is printed about a classifier that was mended."""

from pathlib import Path

from foster.cli.mend_texts import mend_text, old_bundle_text
from foster.learner.mend_report import MendReport, Remains
from foster.learner.update_check import compare

CHECK = compare("held-out", [0, 1], [0, 1], [0, 0], ("cat", "dog"), 2)


def test_a_merge_says_how_near_it_is_to_the_sum() -> None:
    report = MendReport(
        {"cat": "pet", "dog": "pet"}, (), 30, 4, (CHECK,), largest_difference=0.123, mean_difference=0.0149
    )
    told = mend_text(report)
    assert told.startswith("merged cat, dog into pet: 30 exemplars and 4 held-out photos of it are kept\n")
    assert "by 1.5 points on average and 12.3 at most, on the held-out photos" in told
    assert "right -> wrong" in told


def test_forgetting_says_what_remains_and_where() -> None:
    answers = {"dog": 4, "cow": 2, "pig": 1, "hen": 1}
    remains = (Remains("cat", "held-out", 8, 7, answers), Remains("fox", "exemplar", 3, None, {"dog": 3}))
    report = MendReport({}, ("cat", "fox"), 40, 8, (CHECK,), remains=remains)
    told = mend_text(report)
    assert told.startswith("forgot cat, fox: their outputs and their means, 40 exemplars and 8 held-out photos")
    assert "by its features 7 of 8 held-out photos of it could still be told from the others" in told
    assert "They are now taken for dog (4), cow (2), pig (1), ..." in told
    assert "cannot be measured without exemplars" in told
    assert old_bundle_text(Path("b/v1"), report).startswith("b/v1 and bundles before it still keep photos of cat, fox")


def test_a_name_cannot_move_the_cursor() -> None:
    assert mend_text(MendReport({"a\x1b[2J": "b\x1b"})) == "renamed a\ufffd[2J to b\ufffd\n"
