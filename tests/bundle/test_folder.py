"""The bundle: whole or not there, checked when it is read, and never a program in disguise."""

import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from bundles import files_of, forge, made_facts
from PIL import Image
from safetensors.torch import load_file

from foster.bundle import folder as bundle_folder
from foster.bundle.folder import MANIFEST, BundleError, ImageFiles, read_bundle, write_bundle
from foster.bundle.manifest import LABELS, PHOTOS, SCHEMA, WEIGHTS, sha256
from foster.data.photos.decode import Resizing
from foster.errors import FolderError

SIZE = Resizing(6, 5)
CLASSES = ("cat", "猫", "owl")
HISTORY = ({"when": "2026-01-01T00:00:00+00:00", "new_classes": list(CLASSES)},)
FACTS = made_facts(*CLASSES, task_sizes=(2, 1), history=HISTORY)


def random_files(*counts: int, seed: int = 0) -> list[ImageFiles]:
    chance = torch.Generator().manual_seed(seed)
    stacks = [torch.randint(256, (n, 3, 6, 5), dtype=torch.uint8, generator=chance) for n in counts]
    return files_of([list(stack) for stack in stacks])


EXEMPLARS, HELD_OUT = random_files(3, 1, 2), random_files(1, 0, 1, seed=1)
WEIGHT_VALUES = {"head.weight": torch.randn(3, 4), "steps": torch.tensor(7)}


def written(folder: Path) -> Path:
    write_bundle(folder, FACTS, WEIGHT_VALUES, {"exemplars": EXEMPLARS, "held-out": HELD_OUT})
    return folder


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return written(tmp_path / "v1")


def test_what_is_read_is_what_was_written_bit_for_bit(bundle: Path) -> None:
    found = read_bundle(bundle)
    assert found.manifest.classes == CLASSES
    assert found.manifest.task_sizes == (2, 1)
    assert found.manifest.temperature == 1.25
    assert found.manifest.history == HISTORY
    assert found.manifest.preprocessing.mean == (0.5, 0.4, 0.3)
    assert found.weights.keys() == WEIGHT_VALUES.keys()
    assert all(torch.equal(found.weights[name], value) for name, value in WEIGHT_VALUES.items())
    assert found.files("exemplars") == EXEMPLARS
    assert found.files("held-out") == HELD_OUT


def test_a_person_and_other_programs_can_read_it(bundle: Path) -> None:
    assert (bundle / LABELS).read_text(encoding="utf-8") == "cat\n猫\nowl\n"
    assert load_file(bundle / WEIGHTS)["head.weight"].shape == (3, 4)
    data = json.loads((bundle / MANIFEST).read_text(encoding="utf-8"))
    assert data["schema_version"] == SCHEMA
    assert data["classes"][1] == "猫"
    names = {str(path.relative_to(bundle)) for path in bundle.rglob("*") if path.is_file()}
    assert names == {MANIFEST, *data["files"]}
    assert all((bundle / name).stat().st_mode & 0o444 == 0o444 for name in names), "by other users, too"
    assert all(facts["sha256"] == sha256((bundle / name).read_bytes()) for name, facts in data["files"].items())
    assert all(name.isascii() for name in names)
    assert {Path(name).suffix for name in names} == {".json", ".txt", ".zip", ".safetensors"}, "no pickle"
    with zipfile.ZipFile(bundle / PHOTOS) as archive:
        assert archive.namelist() == [entry["file"] for entry in data["exemplars"]]
        assert Image.open(archive.open(archive.namelist()[0])).size == (5, 6)


def test_weights_in_an_unusual_layout_are_stored_plainly(tmp_path: Path) -> None:
    values = torch.randn(4, 3, 2, 2).to(memory_format=torch.channels_last)
    write_bundle(tmp_path / "b", FACTS, {"conv": values, "same": values}, {})
    found = read_bundle(tmp_path / "b").weights
    assert torch.equal(found["conv"], values)
    assert found["same"].is_contiguous()


def test_a_bundle_is_never_written_over_anything(bundle: Path, tmp_path: Path) -> None:
    before = (bundle / MANIFEST).read_bytes()
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for name in ("v1", "empty", "file", "dangling"):
        with pytest.raises(FolderError, match="already exists"):
            written(tmp_path / name)
    assert (bundle / MANIFEST).read_bytes() == before


def test_an_interruption_while_writing_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(files: object) -> bytes:
        raise KeyboardInterrupt

    monkeypatch.setattr(bundle_folder, "zipped", interrupted)
    with pytest.raises(KeyboardInterrupt):
        written(tmp_path / "half")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("version", [SCHEMA - 1, SCHEMA + 1])
def test_another_schema_version_is_one_clear_line(version: int, bundle: Path) -> None:
    forge(bundle, schema_version=version, foster="9.9", something_new=True)
    with pytest.raises(BundleError, match=rf"{version}.*{SCHEMA}.*9\.9"):
        read_bundle(bundle)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda b: truncate(b / WEIGHTS), "network.safetensors.*damaged"),
        (lambda b: flip_a_bit(b / WEIGHTS), "network.safetensors.*hash"),
        (lambda b: flip_a_bit(b / PHOTOS), "photos.zip.*hash"),
        (lambda b: (b / PHOTOS).unlink(), "photos.zip.*No such file"),
        (lambda b: (b / LABELS).write_text("dog\ncat\nowl\n"), "labels.txt"),
        (lambda b: truncate(b / MANIFEST), "bundle.json"),
        (lambda b: (b / MANIFEST).unlink(), "bundle.json"),
        (
            lambda b: (b / MANIFEST).write_text((b / MANIFEST).read_text().replace('"cat"', '"dog"')),
            r"bundle\.json.*hash",
        ),
    ],
)
def test_a_damaged_or_tampered_bundle_is_one_clear_line(
    bundle: Path, damage: Callable[[Path], None], message: str
) -> None:
    damage(bundle)
    with pytest.raises(BundleError, match=message) as error:
        read_bundle(bundle)
    assert "\n" not in str(error.value)


def test_nothing_is_written_into_a_bundle(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "current").symlink_to(bundle)
    before = sorted(bundle.rglob("*"))
    for inside in (bundle / "v2", bundle / "deeper" / "v2", tmp_path / "current" / "v2"):
        with pytest.raises(FolderError, match="bundle"):
            write_bundle(inside, FACTS, WEIGHT_VALUES, {"exemplars": EXEMPLARS})
    assert sorted(bundle.rglob("*")) == before


def test_a_link_that_moves_while_a_bundle_is_read_does_not_mix_two(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, link = shutil.copytree(bundle, tmp_path / "other"), tmp_path / "current"
    (other / WEIGHTS).write_bytes(b"something else")
    link.symlink_to(bundle.name)
    read = bundle_folder.read_json

    def moving(*given: Any, **options: Any) -> Any:
        data = read(*given, **options)
        link.unlink()
        link.symlink_to(other.name)
        return data

    monkeypatch.setattr(bundle_folder, "read_json", moving)
    assert read_bundle(link).weights


def test_a_bundle_that_the_memory_cannot_hold_is_not_read(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle_folder, "main_memory", lambda: 2000)
    monkeypatch.setattr(bundle_folder, "sha256_of", lambda *given: pytest.fail("a file was read"))
    with pytest.raises(BundleError, match="2,000"):
        read_bundle(bundle)
