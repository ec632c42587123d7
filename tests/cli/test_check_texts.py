"""What is printed about photos that were looked at."""

from foster.cli.check_texts import check_report_text
from foster.learner.check_report import CheckReport, Finding, Photo


def photo(name: str) -> Photo:
    return Photo(name, "cat", name)


def test_a_table_and_then_some_of_each_kind_problems_first() -> None:
    findings = (
        Finding("unreadable", (photo("cat/\x1b[2J.jpg"),), "damaged"),
        Finding("duplicate", tuple(photo(f"cat/{k}.jpg") for k in range(6)), "the same photo 6 times in cat"),
        *(Finding("tiny", (photo(f"cat/t{k}.jpg"),), "5 x 5 pixels") for k in range(12)),
        Finding("small-class", (), "dog: 2 photos"),
    )
    told = check_report_text(CheckReport("photos", {"cat": 30, "dog": 2}, 7, {".txt": 2}, findings, ("a remark",)))
    assert told.startswith("32 photos of 2 classes (2 to 30 each) in photos, 7 test photos\n")
    assert "passed over, not taken for images: 2 .txt" in told
    assert "a remark\n" in told
    rows = [line.split() for line in told.splitlines()]
    assert rows.index(["problem", "cannot", "be", "read", "1"]) < rows.index(["remark", "very", "small", "12"])
    assert "cat/3.jpg, ...: the same photo 6 times in cat" in told
    assert "... 2 more (--json lists all)" in told
    assert "  dog: 2 photos" in told
    assert "\x1b" not in told


def test_where_there_is_nothing_it_says_so() -> None:
    assert check_report_text(CheckReport("photos", {"cat": 30}, 0, {}, ())).endswith("nothing was found\n")
