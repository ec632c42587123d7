"""Whatever stands in a bundle's files, also with right hashes: it is read, or refused in one line."""

import copy
import io
import json
import math
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bundles import facts_of, forge, forge_manifest
from faults import MANY, places, time_limit
from hypothesis import example, given, settings
from hypothesis import strategies as st

import foster
from foster.bundle.folder import BundleError, read_bundle, read_manifest, zipped
from foster.bundle.manifest import PHOTOS, WEIGHTS
from foster.cli.texts import classes_text, info_text
from foster.errors import FosterError

FEW = settings(MANY, max_examples=10)
IMAGE = np.zeros((8, 8, 3), np.uint8)


def kept(bundle: Path) -> dict[str, Any]:
    """What `bundle.json` held before any example changed it."""
    untouched = bundle.parent / "untouched" / "bundle.json"
    if not untouched.exists():
        untouched.parent.mkdir()
        shutil.copy(bundle / "bundle.json", untouched)
    return facts_of(untouched.parent)


def use(bundle: Path) -> bool:
    """Do all that can be done with a bundle that may come from anywhere; False where it is refused."""
    before = {path for path in bundle.parent.rglob("*") if not path.is_relative_to(bundle)}
    try:
        with time_limit(30):
            manifest = read_manifest(bundle)
            text = info_text(manifest, bundle) + classes_text(manifest.history)
            assert "\x1b" not in text, "nothing in a bundle moves a terminal's cursor"
            (manifest.text() + text).encode()
            learner = foster.load(bundle, device="cpu")
            (prediction,) = learner.predict([IMAGE])
            assert prediction.error is None
            assert 0 < prediction.confidence <= 1
            assert math.isfinite(prediction.confidence)
            assert learner.knowledge.exemplars.memory.num_classes == len(manifest.classes)
            assert 0 <= learner.knowledge.held_out_share <= 1
        message = ""
    except FosterError as error:
        message = str(error)
    assert len(message) < 2000
    assert {path for path in bundle.parent.rglob("*") if not path.is_relative_to(bundle)} == before
    return not message


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-3, 300)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
    | st.sampled_from(["../../x", "resnet18", "timm:resnet18", "custom:x", "bic", "\x1b[31m", "a\nb", "\ud800", 10**30])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)


@MANY
@given(data=st.data())
def test_a_manifest_with_any_key_or_value_in_any_place_is_read_or_refused(data: st.DataObject, bundle: Path) -> None:
    base = kept(bundle)
    place = data.draw(st.sampled_from(list(places(base))))
    made = copy.deepcopy(base)
    holder: Any = made
    for part in place[:-1]:
        holder = holder[part]
    old, kind = holder[place[-1]], data.draw(st.sampled_from(["value", "key", "gone"]))
    if kind == "value":
        holder[place[-1]] = data.draw(VALUES)
    else:
        holder.pop(place[-1])
    if kind == "key" and isinstance(holder, dict):
        holder[data.draw(st.text(max_size=8) | st.sampled_from(["../../x", "/etc/passwd", "a/../../b"]))] = old
    forge_manifest(bundle, made)
    use(bundle)


def altered(base: dict[str, Any], **values: Any) -> dict[str, Any]:
    return {**copy.deepcopy(base), **values}


def settings_of(method: str, base: dict[str, Any]) -> dict[str, Any]:
    """The settings of a bundle with another method's name and defaults."""
    return {key: value for key, value in base["settings"].items() if key != base["method"]} | {"method": method}


def nested(depth: int) -> Any:
    return [nested(depth - 1)] if depth else 0


HOSTILE: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "a preset that is a list": lambda base: altered(base, settings={**base["settings"], "training": []}),
    "no spread": lambda base: altered(base, preprocessing={**base["preprocessing"], "std": [0, 0, 0]}),
    "a width of a galaxy": lambda base: altered(base, preprocessing={**base["preprocessing"], "width": 10**9}),
    "hardly any temperature": lambda base: altered(base, temperature=1e-320),
    "half a character": lambda base: altered(base, classes=["\ud800", "one"]),
    "a history of no entries": lambda base: altered(base, history=[{"checks": []}]),
    "a check without rows": lambda base: altered(base, history=[{"checks": {"held-out": {"classes": {"a": {}}}}}]),
    "tasks without end": lambda base: altered(base, task_sizes=[2] + [0] * 20_000),
    "a branch for every task that nobody trained": lambda base: altered(
        base, method="der", task_sizes=[2] + [0] * 400, settings=settings_of("der", base)
    ),
    "another method's name": lambda base: altered(base, method="wa"),
    "proxies without end": lambda base: altered(
        base, method="podnet", settings={**settings_of("podnet", base), "podnet": {"num_proxies": 10**12}}
    ),
    "a history nested 300 deep": lambda base: altered(base, history=[{"x": nested(300)}]),
    "a name that no figure can hold": lambda base: altered(base, classes=["z" * 1001, "one"]),
    "a carriage return in a name": lambda base: altered(base, classes=["zero\rone", "one"]),
    "an image of no class": lambda base: altered(base, exemplars=[{**base["exemplars"][0], "class_id": 2}]),
    "an image without a hash": lambda base: altered(base, exemplars=[{**base["exemplars"][0], "file": "none.png"}]),
    "tasks of more classes": lambda base: altered(base, task_sizes=[2, 2]),
    "no hash of the weights": lambda base: altered(
        base, files={name: facts for name, facts in base["files"].items() if name != WEIGHTS}
    ),
    "an unknown key": lambda base: altered(base, surprise=1),
    "one image twice": lambda base: altered(base, exemplars=[*base["exemplars"], base["exemplars"][0]]),
    "a share out of bounds": lambda base: altered(base, history=[{"new_classes": ["zero"], "held_out_share": 7}]),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_manifest_with_right_hashes_and_wrong_content_is_refused(name: str, bundle: Path) -> None:
    forge_manifest(bundle, HOSTILE[name](kept(bundle)))
    assert not use(bundle)


@FEW
@given(content=st.binary(max_size=200) | VALUES.map(lambda value: json.dumps(value).encode()))
@example(content=b"[" * 100_000)
@example(content=b'{"format": "foster bundle"}')
@example(content=b'{"format": "foster bundle", "schema_version": 99999999999999999999}')
@example(content=b'{"a": NaN}')
@example(content=b"9" * 5000)
@example(content=b"")
def test_a_manifest_of_any_bytes_is_refused(content: bytes, bundle: Path) -> None:
    (bundle / "bundle.json").write_bytes(content)
    assert not use(bundle)


def forge_file(bundle: Path, name: str, content: bytes) -> None:
    forge_manifest(bundle, kept(bundle))
    forge(bundle, {name: content})


@FEW
@given(content=st.binary(max_size=300))
@example(content=b"\xff\xff\xff\xff\xff\xff\xff\x7f{}")
@example(content=b"\x02\0\0\0\0\0\0\0{}")
def test_weights_of_any_bytes_with_the_right_hash_are_refused(content: bytes, bundle: Path) -> None:
    forge_file(bundle, WEIGHTS, content)
    assert not use(bundle)


@FEW
@given(content=st.binary(max_size=300))
@example(content=zipped([]))
@example(content=zipped([("../../secret.png", b"x")]))
def test_images_of_any_bytes_with_the_right_hash_are_refused(content: bytes, bundle: Path) -> None:
    forge_file(bundle, PHOTOS, content)
    assert not use(bundle)


def compressed(names: list[str]) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(name, bytes(10**6))
    return target.getvalue()


def overlapping(names: list[str]) -> bytes:
    """A ZIP file whose entries lie inside each other: the content of each is the whole entry after it."""
    entry, directory = bytes(1000), list[bytearray]()
    for name in reversed(names):
        whole = zipped([(name, entry)])
        entry, _, facts = whole.partition(DIRECTORY)
        directory.insert(0, bytearray(DIRECTORY + facts[: facts.index(END)]))
    end, place = bytearray(whole[whole.index(END) :]), 0
    for name, facts_of_one in zip(names, directory, strict=True):
        facts_of_one[42:46] = place.to_bytes(4, "little")
        place += 30 + len(name)
    end[8:12] = 2 * len(names).to_bytes(2, "little")
    end[12:20] = sum(map(len, directory)).to_bytes(4, "little") + len(entry).to_bytes(4, "little")
    return entry + b"".join(directory) + end


def padded(names: list[str]) -> bytes:
    """A ZIP file whose directory says of each entry that it takes much more of the file than it has bytes."""
    content = bytearray(zipped([(name, bytes(1000)) for name in names]))
    place = content.find(DIRECTORY)
    while place >= 0:
        content[place + 20 : place + 24] = (10**8).to_bytes(4, "little")
        place = content.find(DIRECTORY, place + 4)
    return bytes(content)


DIRECTORY, END = b"PK\1\2", b"PK\5\6"


@pytest.mark.parametrize("made", [compressed, overlapping, padded])
def test_images_that_would_become_larger_than_their_file_are_refused(
    made: Callable[[list[str]], bytes], bundle: Path
) -> None:
    forge_file(bundle, PHOTOS, made([entry["file"] for entry in kept(bundle)["exemplars"]]))
    with pytest.raises(BundleError, match=PHOTOS):
        read_bundle(bundle).files("exemplars")


@pytest.mark.parametrize("name", [WEIGHTS, "labels.txt", PHOTOS])
def test_a_link_in_the_place_of_a_file_is_not_followed(name: str, bundle: Path) -> None:
    secret = (bundle / name).rename(bundle.parent / "secret")
    (bundle / name).symlink_to(secret)
    assert not use(bundle)


@pytest.mark.parametrize("name", ["../secret.png", "/tmp/secret.png", "exemplars/../../secret.png", "x" * 5000])
def test_no_name_in_a_manifest_leads_out_of_the_bundle(name: str, bundle: Path) -> None:
    base = kept(bundle)
    exemplars = [{**base["exemplars"][0], "file": name}, *base["exemplars"][1:]]
    facts = base["files"]["labels.txt"]
    for change in ({"exemplars": exemplars}, {"files": {**base["files"], name: facts}}):
        forge_manifest(bundle, altered(base, **change))
        assert not use(bundle)
