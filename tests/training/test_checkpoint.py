"""However a checkpoint is damaged, what is loaded is exactly something that was saved."""

import hashlib
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from faults import MANY, FullDisk, time_limit
from hypothesis import given, settings
from hypothesis import strategies as st

from foster.errors import FolderError
from foster.training.checkpoint import Checkpoint, CheckpointStore
from foster.training.task import TaskState


def tensors(value: float) -> dict[str, torch.Tensor]:
    return {"weight": torch.full((2, 3), value), "bias": torch.tensor([value, -value])}


def no_warning(message: str) -> None:
    raise AssertionError(f"unexpected warning: {message}")


def saved_value(checkpoint: Checkpoint | None) -> int:
    """Which save this is, after a check that all its parts belong together."""
    assert checkpoint is not None
    value = checkpoint.state["value"]
    assert torch.equal(checkpoint.parts["fit"]["weight"], torch.full((2, 3), float(value)))
    assert torch.equal(checkpoint.parts["fit"]["bias"], torch.tensor([value, -value], dtype=torch.float32))
    assert torch.equal(checkpoint.parts["network"]["weight"], torch.full((2, 3), float(checkpoint.state["network"])))
    return int(value)


def fill(folder: Path) -> CheckpointStore:
    """Five saves over two tasks; 4 and 5 share a network file."""
    store = CheckpointStore(folder)
    networks = {number: tensors(number) for number in (1, 4)}
    for value, network in ((1, 1), (2, 1), (3, 1), (4, 4), (5, 4)):
        state = {"value": value, "network": network, "record": {"head": [0.1, None]}}
        store.save(state, {"network": networks[network]}, {"fit": tensors(value)})
    return store


def test_who_looks_on_leaves_alone_what_another_process_may_be_writing(tmp_path: Path):
    store, left = fill(tmp_path), tmp_path / ".manifest.0123456789ab.part"
    left.write_text("half")
    assert store.load(no_warning, is_read_only=True) is not None
    assert left.exists()
    assert store.load(no_warning) is not None
    assert not left.exists()


def test_the_two_newest_are_kept(tmp_path: Path):
    fill(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "00000004-fit.safetensors",
        "00000004-network.safetensors",
        "00000005-fit.safetensors",
        "manifest-00000004.json",
        "manifest-00000005.json",
    ]


def test_a_part_that_stays_is_written_once_and_a_new_one_of_the_same_name_again(tmp_path: Path):
    store = CheckpointStore(tmp_path)
    for number in range(1, 4):
        # Each dictionary dies before the next is made, so that they may get the same id.
        store.save({"value": number}, {"network": tensors(number)}, {})
        assert torch.equal(
            CheckpointStore(tmp_path).load(no_warning).parts["network"]["weight"], torch.full((2, 3), number)
        )  # type: ignore[union-attr]


def test_a_damaged_checkpoint_is_passed_over_and_never_kept_in_place_of_a_good_one(tmp_path: Path):
    fill(tmp_path)
    (tmp_path / "00000005-fit.safetensors").write_bytes(b"")
    store, warned = CheckpointStore(tmp_path), []
    checkpoint = store.load(warned.append)
    assert saved_value(checkpoint) == 4
    (warning,) = warned
    assert f"{tmp_path}/manifest-00000005.json" in warning
    assert "00000005-fit.safetensors" in warning
    assert checkpoint is not None
    store.save(checkpoint.state | {"value": 6}, {"network": checkpoint.parts["network"]}, {"fit": tensors(6)})
    kept = sorted(path.name for path in tmp_path.glob("manifest-*"))
    assert kept == ["manifest-00000004.json", "manifest-00000006.json"]
    assert saved_value(CheckpointStore(tmp_path).load(no_warning)) == 6


def test_a_manifest_in_which_one_digit_has_changed_is_passed_over(tmp_path: Path):
    fill(tmp_path)
    path, warned = tmp_path / "manifest-00000005.json", []
    text = path.read_text(encoding="utf-8")
    assert text.count("0.1") == 1
    path.write_text(text.replace("0.1", "0.2"), encoding="utf-8")
    assert saved_value(CheckpointStore(tmp_path).load(warned.append)) == 4
    assert str(path) in warned[0]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("filled") / "checkpoints"
    fill(folder)
    return folder


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    return tmp_path / "scratch"


DAMAGES = {
    "truncated": lambda data, offset, bit: data[:offset],
    "flipped": lambda data, offset, bit: data[:offset] + bytes([data[offset] ^ (1 << bit)]) + data[offset + 1 :],
    "overwritten with zeros": lambda data, offset, bit: data[:offset] + bytes(len(data) - offset),
    "lengthened": lambda data, offset, bit: data + bytes([bit]),
    "replaced by noise": lambda data, offset, bit: os.urandom(offset),
}


@MANY
@given(data=st.data())
def test_no_damaged_file_is_read_as_good(data: st.DataObject, filled: Path, scratch: Path):
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.copytree(filled, scratch)
    name = data.draw(st.sampled_from(sorted(path.name for path in scratch.iterdir())), label="file")
    damage = data.draw(st.sampled_from([*DAMAGES, "removed"]), label="damage")
    content = (scratch / name).read_bytes()
    if damage == "removed":
        (scratch / name).unlink()
    else:
        offset = data.draw(st.integers(0, len(content) - 1), label="offset")
        damaged = DAMAGES[damage](content, offset, data.draw(st.integers(0, 7), label="bit"))
        (scratch / name).write_bytes(damaged)
        if damaged == content:
            return
    warned: list[str] = []
    if name == "00000004-network.safetensors":
        with pytest.raises(FolderError, match=re.escape(str(scratch))):
            CheckpointStore(scratch).load(warned.append)
        return
    value = saved_value(CheckpointStore(scratch).load(warned.append))
    expected = {"00000005-fit.safetensors": 4, "manifest-00000005.json": 4}
    # White space between the tokens of a manifest means nothing.
    is_as_good = name == "manifest-00000005.json" and value == 5
    assert value == expected.get(name, 5) or is_as_good
    is_unseen = damage == "removed" and name.startswith("manifest")
    assert bool(warned) == (value != 5 and not is_unseen)
    assert all("\n" not in message for message in warned)


def rewrite(folder: Path, change: Any) -> None:
    """Alter the newest manifest and give it the right hash again, as somebody with bad intentions would."""
    path = max(folder.glob("manifest-*.json"))
    manifest = json.loads(path.read_text(encoding="utf-8"))
    del manifest["hash"]
    change(manifest)
    text = json.dumps(manifest, sort_keys=True).encode()
    path.write_text(json.dumps(manifest | {"hash": hashlib.sha256(text).hexdigest()}), encoding="utf-8")


OUTSIDE = [
    "../outside.safetensors",
    "/etc/hostname",
    "sub/00000001-fit.safetensors",
]


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_manifest_that_names_a_file_elsewhere_is_refused_though_its_hashes_are_right(name: str, tmp_path: Path):
    fill(tmp_path / "checkpoints")
    secret = safetensors.torch.save(tensors(5))
    (tmp_path / "outside.safetensors").write_bytes(secret)
    sha256 = hashlib.sha256(secret).hexdigest()
    rewrite(tmp_path / "checkpoints", lambda manifest: manifest["files"].update(fit={"name": name, "sha256": sha256}))
    warned: list[str] = []
    assert saved_value(CheckpointStore(tmp_path / "checkpoints").load(warned.append)) == 4
    assert "files.fit.name" in warned[0]


def test_a_folder_that_is_a_link_is_neither_read_nor_written(tmp_path: Path):
    fill(tmp_path / "elsewhere")
    before = {path.name for path in (tmp_path / "elsewhere").iterdir()}
    (tmp_path / "checkpoints").symlink_to("elsewhere")
    store = CheckpointStore(tmp_path / "checkpoints")
    with pytest.raises(FolderError, match="checkpoints"):
        store.load(no_warning)
    with pytest.raises(FolderError, match="checkpoints"):
        store.save({}, {}, {"fit": tensors(6)})
    assert {path.name for path in (tmp_path / "elsewhere").iterdir()} == before


@pytest.mark.parametrize("name", ["00000005-fit.safetensors", "manifest-00000005.json"])
def test_a_file_that_has_become_huge_is_passed_over_unread(name: str, tmp_path: Path):
    fill(tmp_path)
    os.truncate(tmp_path / name, 10 * 2**30)  # sparse: it takes no room on the disk
    with time_limit(5):
        assert saved_value(CheckpointStore(tmp_path).load(lambda message: None)) == 4


@pytest.mark.parametrize(
    "change",
    [
        {"task": -1},
        {"num_phases_done": 10**12},
        {"seconds": float("nan")},
        {"position": {"epoch": 0}},
        {"position": {"epoch": 0, "step": 0, "loss_sums": [1.0]}},  # without the part 'fit'
    ],
)
def test_how_far_a_task_has_come_is_typed_and_has_all_its_parts(change: dict[str, Any]):
    state = {"task": 1, "phase": "boost", "num_phases_done": 1, "seconds": 0.5}
    parts = {"network": tensors(1), "phase-0": tensors(2)}
    assert TaskState.of(Checkpoint(state, parts)).task == 1
    with pytest.raises(ValueError, match="phase-0"):
        TaskState.of(Checkpoint(state, {"network": parts["network"]}))
    with pytest.raises(ValueError, match=r".+"):
        TaskState.of(Checkpoint({**state, **change}, parts))


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.sampled_from(OUTSIDE),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@settings(MANY, max_examples=10)
@given(data=st.data())
def test_altered_manifests_with_right_hashes_never_raise_anything_but_a_clear_line(
    data: st.DataObject, filled: Path, scratch: Path
):
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.copytree(filled, scratch)

    def change(manifest: dict[str, Any]) -> None:
        place = data.draw(st.sampled_from(["schema", "state", "files", "fit", "name", "sha256"]), label="place")
        target = {"fit": manifest["files"], "name": manifest["files"]["fit"], "sha256": manifest["files"]["fit"]}
        target.get(place, manifest)[place] = data.draw(ANY_JSON, label="value")

    rewrite(scratch, change)
    before = {path: path.read_bytes() for path in scratch.parent.rglob("*") if path.is_file()}
    checkpoint = CheckpointStore(scratch).load(lambda message: None)
    assert checkpoint is not None
    assert {path: path.read_bytes() for path in scratch.parent.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("content", ["[" * 100_000, "null", '{"hash": 1}', "\x00"])
def test_a_manifest_of_anything_else_is_passed_over(content: str, tmp_path: Path):
    fill(tmp_path)
    (tmp_path / "manifest-00000005.json").write_text(content, encoding="utf-8")
    assert saved_value(CheckpointStore(tmp_path).load(lambda message: None)) == 4


def test_every_failed_write_of_a_save_leaves_the_checkpoints_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    store = fill(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for num_writes in range(3):
        with monkeypatch.context() as patch:
            patch.setattr("os.write", FullDisk("", num_writes))
            with pytest.raises(FolderError, match="No space left on device"):
                store.save({"value": 6, "network": 6}, {"network": tensors(6)}, {"fit": tensors(6)})
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    store.save({"value": 6, "network": 6}, {"network": tensors(6)}, {"fit": tensors(6)})
    assert saved_value(CheckpointStore(tmp_path).load(no_warning)) == 6


def test_files_reach_the_disk_before_the_manifest_that_names_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    done: list[str] = []
    real_replace = Path.replace

    def flushed(descriptor: int) -> None:
        name = Path(f"/proc/self/fd/{descriptor}").readlink().name
        done.append("flush folder" if name == "checkpoints" else "flush file")

    def replaced(self: Path, target: Path) -> Path:
        done.append(f"rename to {target.name}")
        return real_replace(self, target)

    monkeypatch.setattr("os.fsync", flushed)
    monkeypatch.setattr(Path, "replace", replaced)
    CheckpointStore(tmp_path / "checkpoints").save({}, {"network": tensors(1)}, {"fit": tensors(1)})
    assert done == [
        "flush file",
        "rename to 00000001-network.safetensors",
        "flush file",
        "rename to 00000001-fit.safetensors",
        "flush folder",
        "flush file",
        "rename to manifest-00000001.json",
        "flush folder",
    ]
