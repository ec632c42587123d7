"""What was found, as plain data."""

import json

from foster.learner.check_report import KINDS, CheckReport, Finding, Photo


def test_problems_are_told_from_remarks() -> None:
    photos = (Photo("a/1.jpg", "a", "a/1.jpg"), Photo("t/1.jpg", "a", "t/1.jpg", is_test=True))
    findings = (Finding("in-test", photos, "the same photo"), Finding("mislabelled", photos[:1], "looks like b", "b"))
    report = CheckReport("photos", {"a": 3, "b": 4}, 1, {}, findings)
    assert str(report) == "7 photos of 2 classes: 1 problem and 1 remark"
    assert report.problems == findings[:1]
    assert report.of_kind("mislabelled") == findings[1:]
    record = json.loads(json.dumps(report.record()))
    assert record["problems"] == 1
    assert record["findings"][0]["photos"][1] == {"image": "t/1.jpg", "label": "a", "part": "test"}
    assert record["findings"][1]["looks_like"] == "b"
    assert all(kind.title for kind in KINDS.values())
