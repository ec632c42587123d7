"""Tests mirror the package: every module has the file of its tests, and every file of tests its module.

The tests of `room/name.py` stand in `tests/room/test_name.py`, those of `room/__init__.py` in
`tests/room/test_init.py`, and those that need a GPU may stand apart, in `test_name_gpu.py`.
"""

from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[2]
SOURCE, TESTS = ROOT / "src" / "foster", ROOT / "tests"

ELSEWHERE = {"architecture", "benchmarks", "docs", "end_to_end", "robustness", "tools"}
"""Folders of tests that look at the whole, from a side of their own."""

EXCUSED = {
    "serving/answers.py": "the shapes of answers",
    "settings/engine.py": "names of settings and their defaults",
}
"""Modules without behaviour of their own, or that can only be seen through another."""


def modules() -> set[str]:
    """Those that need tests. Code for the GPU is reached through its twin outside of `kernels/device`."""
    found = {path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py")}
    return {name for name in found if not name.startswith("kernels/device/")}


def mirrored(module: str) -> str:
    path = PurePosixPath(module)
    return str(path.with_name(f"test_{path.stem.strip('_')}.py"))


def test_every_module_has_the_file_of_its_tests() -> None:
    missing = [
        name
        for name in sorted(modules() - EXCUSED.keys())
        if not name.endswith("__init__.py") and not (TESTS / mirrored(name)).is_file()
    ]
    assert missing == [], "write tests/ROOM/test_NAME.py"


def test_every_file_of_tests_has_its_module() -> None:
    known = {mirrored(name) for name in modules()}
    files = {path.relative_to(TESTS).as_posix() for path in TESTS.rglob("test_*.py")}
    strange = [
        name
        for name in sorted(files)
        if name.split("/")[0] not in ELSEWHERE and name not in known and name.replace("_gpu.py", ".py") not in known
    ]
    assert strange == [], "name it after the module that it tests, or put it with the tests of the whole"


def test_nothing_is_excused_for_nothing() -> None:
    assert [name for name in EXCUSED if name not in modules() or (TESTS / mirrored(name)).is_file()] == []
