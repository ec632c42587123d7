"""What continuous integration installs is known to the last package, whichever extra is asked for."""

import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]


def pinned() -> set[str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return {canonicalize_name(line.partition("==")[0]) for line in lines if not line.startswith("#")}


def asked_for_by(requirement: Requirement) -> list[Requirement]:
    """What a package asks for here in its turn; nothing where it is not installed."""
    try:
        lines = metadata.requires(requirement.name) or []
    except metadata.PackageNotFoundError:
        return []
    found = [Requirement(line) for line in lines]
    extras = ("", *requirement.extras)
    return [
        needed
        for needed in found
        if not needed.marker or any(needed.marker.evaluate({"extra": extra}) for extra in extras)
    ]


def test_every_package_of_every_extra_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [line for lines in project["optional-dependencies"].values() for line in lines]
    waiting = [Requirement(line) for line in (*project["dependencies"], *extras)]
    seen: set[str] = set()
    while waiting:
        requirement = waiting.pop()
        if str(requirement) not in seen and requirement.name != project["name"]:
            seen.add(str(requirement))
            waiting += asked_for_by(requirement)
    names = {canonicalize_name(Requirement(line).name) for line in seen}
    assert len(names) > 40
    assert names <= pinned(), f"pin in constraints.txt: {', '.join(sorted(names - pinned()))}"
