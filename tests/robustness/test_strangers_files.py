"""A bundle, run folder or list of a stranger: each of its files may be huge, a pipe, or hold odd numbers."""

import os
import resource
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import safetensors.torch
import torch
from bundles import facts_of, forge
from faults import time_limit

import foster
from foster.bundle.folder import BundleError, read_manifest
from foster.bundle.manifest import MAX_TASKS, WEIGHTS
from foster.bundle.promotion import promote
from foster.cli.bundles import promote_bundle
from foster.data.photos.decode import decode
from foster.data.photos.find import find_photos
from foster.errors import FosterError
from foster.experiment.artifacts import read_predictions
from foster.experiment.artifacts import read_weights as read_network
from foster.experiment.event_log import FollowedRun
from foster.experiment.results import read_result
from foster.networks.pretrained import read_weights
from foster.settings.experiment import load_settings

IN_A_FOLDER: dict[str, Callable[[Path], object]] = {
    "events.jsonl": lambda path: FollowedRun("", path.parent).read_events(),
    "results.json": lambda path: read_result(path),
    "predictions.safetensors": lambda path: read_predictions(path.parent),
    "network.safetensors": lambda path: read_network(path),
    "weights.safetensors": lambda path: read_weights(path),
    "settings.toml": lambda path: load_settings(str(path)),
    "photos.csv": lambda path: find_photos(path),
    "photo.jpg": lambda path: decode(path),
}
IN_A_BUNDLE = ("bundle.json", "network.safetensors", "labels.txt", "photos.zip")


@pytest.fixture(autouse=True)
def little_memory() -> Iterator[None]:
    """A reader without a limit would otherwise fill the machine."""
    used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * os.sysconf("SC_PAGE_SIZE")
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**31, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def make_huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**42)  # sparse: it takes no room on the disk


def make_pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def assert_refused(action: Callable[[], object], name: str) -> None:
    with time_limit(), pytest.raises(FosterError) as error:
        action()
    assert "\n" not in str(error.value)
    assert name in str(error.value)


@pytest.mark.parametrize("make", [make_huge, make_pipe])
@pytest.mark.parametrize("name", IN_A_FOLDER)
def test_a_file_that_is_huge_or_a_pipe_is_refused_at_once(
    name: str, make: Callable[[Path], None], tmp_path: Path
) -> None:
    path = tmp_path / name
    make(path)
    assert_refused(lambda: IN_A_FOLDER[name](path), "" if name == "photo.jpg" else path.name)


@pytest.mark.parametrize("make", [make_huge, make_pipe])
@pytest.mark.parametrize("name", IN_A_BUNDLE)
def test_a_bundle_with_such_a_file_is_neither_loaded_nor_promoted(
    name: str, make: Callable[[Path], None], bundle: Path
) -> None:
    make(bundle / name)
    assert_refused(lambda: foster.load(bundle, device="cpu"), name)
    assert_refused(lambda: promote(bundle), name)


def test_a_history_without_end_and_images_of_any_size_are_refused(bundle: Path, tmp_path: Path) -> None:
    facts = facts_of(bundle)
    changes = ({"history": [{}] * (MAX_TASKS + 1)}, {"preprocessing": facts["preprocessing"] | {"height": 4096}})
    for number, change in enumerate(changes):
        copy = shutil.copytree(bundle, tmp_path / str(number))
        forge(copy, **change)
        with pytest.raises(BundleError, match=next(iter(change))):
            read_manifest(copy)


@pytest.mark.parametrize("kind", [torch.float8_e4m3fn, torch.float8_e5m2, torch.complex64])
def test_weights_are_floats_that_networks_compute_with(kind: torch.dtype, bundle: Path, tmp_path: Path) -> None:
    content = safetensors.torch.save({"head.weight": torch.zeros(2, 2).to(kind)})
    path = tmp_path / "weights.safetensors"
    path.write_bytes(content)
    for read in (read_network, read_weights):
        assert_refused(lambda read=read: read(path), str(path))
    forge(bundle, {WEIGHTS: content})
    assert_refused(lambda: foster.load(bundle, device="cpu"), str(kind))


def test_promote_finds_what_serve_could_not_load(bundle: Path) -> None:
    weights = safetensors.torch.load((bundle / "network.safetensors").read_bytes())
    for change in ({"head.weight": weights["head.weight"] * torch.nan}, {"head.weight": None}):
        changed = {name: tensor for name, tensor in (weights | change).items() if tensor is not None}
        forge(bundle, {WEIGHTS: safetensors.torch.save(changed)})
        assert_refused(lambda: promote_bundle(bundle), str(bundle))
    assert not (bundle.parent / "current").is_symlink()
