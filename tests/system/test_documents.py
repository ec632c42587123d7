"""JSON files that may come from anywhere: typed data, or one line that says what is wrong."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue

from foster.system.documents import (
    Count,
    Document,
    DocumentError,
    Percent,
    Seconds,
    Sha256,
    Words,
    checked,
    read_json,
)


class Part(Document):
    sha256: Sha256
    count: Count = 0


class Example(Document):
    name: Words
    accuracy: Percent
    seconds: Seconds = 0.0
    parts: tuple[Part, ...] = ()
    other: JsonValue = None


def write(folder: Path, data: Any) -> Path:
    path = folder / "example.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


def read_example(path: Path, max_bytes: int = 10_000) -> Example:
    return checked(read_json(path, max_bytes), Example, path)


def test_what_is_read_is_typed_and_keys_of_other_versions_are_passed_over(tmp_path: Path) -> None:
    data = {"name": "a\x1b[31m", "accuracy": 50, "parts": [{"sha256": "0" * 64}], "new": 1, "other": {"a": [1.5]}}
    found = read_example(write(tmp_path, data))
    assert found == Example(name="a\ufffd[31m", accuracy=50.0, parts=(Part(sha256="0" * 64),), other={"a": [1.5]})


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"accuracy": 200}, "accuracy"),
        ({"accuracy": -1}, "accuracy"),
        ({"accuracy": float("nan")}, "accuracy"),
        ({"seconds": float("inf")}, "seconds"),
        ({"other": [float("nan")]}, "other.list.0.float"),
        ({"parts": [{}]}, "parts.0.sha256"),
        ({"parts": [{"sha256": "../x"}]}, "parts.0.sha256"),
        ({"parts": [{"sha256": "0" * 64 + "\n"}]}, "parts.0.sha256"),
        ({"parts": [{"sha256": "0" * 64, "count": 2**63}]}, "parts.0.count"),
        ({"name": ["x"]}, "name"),
    ],
)
def test_what_is_wrong_is_one_line_with_its_place(change: dict[str, Any], place: str, tmp_path: Path) -> None:
    path = write(tmp_path, {"name": "x", "accuracy": 1.0, **change})
    with pytest.raises(DocumentError) as error:
        read_example(path)
    assert str(error.value).startswith(f"'{path}' ")
    assert f" {place}: " in str(error.value)
    assert "\n" not in str(error.value)


CONTENTS = {
    "nested": b"[" * 300 + b"]" * 300,
    "a long number": b'{"name": "x", "accuracy": ' + b"9" * 5000 + b"}",
    "half a character": b'{"name": "\\ud800", "accuracy": 1}',
    "no text": b"\xff\xfe",
    "nothing": b"",
    "cut": b'{"name": "x", "accu',
    "a list": b"[]",
}


@pytest.mark.parametrize("name", CONTENTS)
def test_any_other_content_is_one_line(name: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_bytes(CONTENTS[name])
    with pytest.raises(DocumentError, match=r"\A'[^\n]*x\.json' is damaged[^\n]*\Z"):
        read_example(tmp_path / "x.json")


def test_a_file_that_is_too_large_or_missing_is_not_read(tmp_path: Path) -> None:
    path = write(tmp_path, {"name": "x", "accuracy": 1})
    with pytest.raises(DocumentError, match="No such file"):
        read_example(tmp_path / "none")
    with pytest.raises(DocumentError, match="more than 10"):
        read_example(path, max_bytes=10)
