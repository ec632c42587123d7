"""What mending did, in words and as plain data for the history."""

from foster.bundle.history import checked_entry
from foster.learner.mend_report import MendReport, Remains
from foster.learner.update_check import compare


def test_a_report_is_a_line_and_an_entry_of_the_history() -> None:
    check = compare("held-out", [0, 1], [0, 1], [0, 0], ("cat", "dog"), 2)
    renamed = MendReport({"cat": "tiger"})
    merged = MendReport({"cat": "pet", "dog": "pet"}, num_exemplars=7, checks=(check,))
    forgot = MendReport({}, ("cow",), remains=(Remains("cow", "held-out", 3, 2, {"dog": 3}),), checks=(check,))
    assert [str(one) for one in (renamed, merged, forgot)] == [
        "renamed cat to tiger",
        "merged cat, dog into pet",
        "forgot cow",
    ]
    for one in (renamed, merged, forgot):
        checked_entry(one.record())
    assert renamed.record() == {"renamed": {"cat": "tiger"}}
    assert merged.record()["checks"]["held-out"]["negative_flips"] == 1
    assert forgot.record()["remains"] == {"cow": {"kind": "held-out", "images": 3, "told": 2, "answers": {"dog": 3}}}
