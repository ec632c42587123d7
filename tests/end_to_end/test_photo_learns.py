"""Photos above 64 pixels: decoded once, kept larger than the network sees them, and kept in bundles as JPEG files."""

import hashlib
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import torch
from photo_folders import write_photos
from PIL import Image

import foster
from foster.bundle.folder import read_bundle, read_manifest
from foster.data.photos import decode as decoding
from foster.events import Event, Warned
from foster.learner.learner import Learner

CPU = torch.device("cpu")
SIDE = 66


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two classes in `first`, two more in `second`; one photo is cut short."""
    whole = write_photos(tmp_path_factory.mktemp("photos") / "all", 4, 6, sides=(90, 160), broken=1)
    for number in range(4):
        part = whole.parent / ("first" if number < 2 else "second")
        part.mkdir(exist_ok=True)
        (whole / f"class {number}").rename(part / f"class {number}")
    return whole.parent


def photo_learner(**settings: Any) -> Learner:
    plain = {"backbone": "resnet8", "image_size": SIDE, "epochs_scale": 0.001, "memory_total": 16, "batch_size": 8}
    plain |= {"device": "cpu", "training": "paper", "validation_share": 0.15, "engine": {"threads": 1}}
    return foster.Learner(**{**plain, **settings})  # type: ignore[arg-type]


def digests(folder: Path) -> dict[str, str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_a_bundle_keeps_photos_as_files_and_goes_on_as_the_learner_does(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    num_decoded = 0
    decode = decoding.decode

    def counting(*arguments: Any) -> Image.Image:
        nonlocal num_decoded
        num_decoded += 1
        return decode(*arguments)

    monkeypatch.setattr(decoding, "decode", counting)
    learner = photo_learner()
    told: list[Event] = []
    report = learner.learn(photos / "first", listener=told.append)
    assert num_decoded == 12  # each photo once
    assert len(report.unreadable) == 1
    assert not [event for event in told if isinstance(event, Warned)], "the report names it"
    bundle = learner.save(tmp_path / "v1")
    facts = read_manifest(bundle)
    assert {Path(entry.file).suffix for entry in facts.exemplars} == {".jpg"}
    with Image.open(BytesIO(read_bundle(bundle).image_files[facts.exemplars[0].file])) as kept:
        assert min(kept.size) == round(SIDE * 8 / 7)
        assert not kept.getexif()
    loaded = foster.load(bundle, device="cpu")
    assert loaded.knowledge.entries() == learner.knowledge.entries()
    assert loaded.save(tmp_path / "again").is_dir()
    assert digests(tmp_path / "again") == digests(bundle)
    reports = [each.learn(photos / "second") for each in (learner, loaded)]
    assert reports[0].variants == reports[1].variants
    assert digests(learner.save(tmp_path / "v2")).keys() == digests(loaded.save(tmp_path / "v3")).keys()
    before, after = (read_bundle(one).image_files for one in (bundle, tmp_path / "v3"))
    known = [content for name, content in after.items() if name.startswith(("exemplars/0000", "exemplars/0001"))]
    assert known
    assert set(known) <= set(before.values())  # never encoded a second time
    assert loaded.evaluate(photos / "first").num_trained_on > 0
