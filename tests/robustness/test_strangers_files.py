"""A bundle, run folder or list of a stranger: each of its files may be huge, a pipe, or hold odd numbers."""

import io
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
from PIL import Image

import foster
from foster.bundle.folder import BundleError, read_bundle, read_manifest, zipped
from foster.bundle.manifest import MAX_TASKS, PHOTOS, WEIGHTS
from foster.bundle.promotion import promote
from foster.cli.bundles import promote_bundle
from foster.data.photos.decode import decode
from foster.data.photos.find import find_photos
from foster.errors import FosterError
from foster.experiment import event_log
from foster.experiment.artifacts import read_predictions
from foster.experiment.event_log import FollowedRun
from foster.experiment.results import read_result
from foster.learner.familiarity import Familiarity
from foster.methods.base import Method
from foster.networks.pretrained import read_weights
from foster.networks.statistics import Statistics
from foster.reports.contact_sheet import draw_sheet
from foster.settings.experiment import load_settings
from foster.settings.toml import read_toml
from foster.system import documents
from foster.system.documents import read_tensors

IN_A_FOLDER: dict[str, Callable[[Path], object]] = {
    "events.jsonl": lambda path: FollowedRun(path.parent).read_events(),
    "results.json": lambda path: read_result(path),
    "predictions.safetensors": lambda path: read_predictions(path.parent),
    "network.safetensors": lambda path: read_tensors(path),
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
    for read in (read_tensors, read_weights):
        assert_refused(lambda read=read: read(path), str(path))
    forge(bundle, {WEIGHTS: content})
    assert_refused(lambda: foster.load(bundle, device="cpu"), str(kind))


@pytest.mark.parametrize("names", [[], [f"branches.{k}.x" for k in range(5000)]])
def test_a_network_is_not_built_where_its_weights_are_missing(
    names: list[str], bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = {name: torch.zeros(1) for name in names} | {"head.weight": torch.zeros(5000, 1)}
    forge(
        bundle,
        {WEIGHTS: safetensors.torch.save(weights | {"head.bias": torch.zeros(5000)})},
        method="der",
        settings={"method": "der"},
        classes=[str(k) for k in range(5000)],
        task_sizes=[1] * 5000,
        exemplars=[],
    )
    monkeypatch.setattr(Method, "new_network", lambda *given: pytest.fail("it was built"))
    assert_refused(lambda: foster.load(bundle, device="cpu"), str(bundle))


def test_a_bundle_does_not_choose_folders_and_limits_of_this_machine(bundle: Path) -> None:
    usual = foster.load(bundle, device="cpu").settings
    machine = {"engine": {"photo_cache": str(bundle.parent), "resident": "disk"}, "max_unreadable": 10**6}
    forge(bundle, settings={**facts_of(bundle)["settings"], **machine})
    assert foster.load(bundle, device="cpu").settings == usual


def test_json_whose_objects_would_fill_the_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "results.json").write_text("[" + ",".join(["[]"] * 1000) + "]", encoding="utf-8")
    monkeypatch.setattr(documents, "main_memory", lambda: 60 * 3000)
    assert_refused(lambda: read_result(tmp_path / "results.json"), "bytes, more than 1,406")


def test_an_event_whose_objects_would_fill_the_memory_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = '{"event": "RunStarted", "method": "wa", "scenario": "x", "num_tasks": 1, "folder": "", "device": "cpu"}'
    (tmp_path / "events.jsonl").write_text(f"{line}\n", encoding="utf-8")
    assert len(FollowedRun(tmp_path).read_events()) == 1
    monkeypatch.setattr(event_log, "MAX_LINE_BYTES", len(line) - 1)
    assert not FollowedRun(tmp_path).read_events()


def test_a_sheet_does_not_decode_images_of_any_size(bundle: Path, tmp_path: Path) -> None:
    large = io.BytesIO()
    Image.new("L", (1000, 1000)).save(large, "PNG")
    names = [entry["file"] for entry in facts_of(bundle)["exemplars"]]
    forge(bundle, {PHOTOS: zipped((name, large.getvalue()) for name in names)})
    assert_refused(lambda: draw_sheet(read_bundle(bundle), tmp_path / "sheet.png"), "is not 8 x 8")


@pytest.mark.parametrize("text", [f"{'a.' * 20_000}a = 1", "[[a]]\n" * 20_000])
def test_settings_that_take_the_parser_hours_are_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_text(text, encoding="utf-8")
    assert_refused(lambda: read_toml(tmp_path / "settings.toml"), "dots and brackets")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("threshold", torch.zeros(3)),
        ("usual", torch.zeros(5)),
        ("sums", torch.zeros(4)),
        ("sums", torch.zeros(2, 1)),
    ],
)
def test_a_measure_of_unknown_photos_that_is_damaged_is_refused(name: str, value: torch.Tensor, bundle: Path) -> None:
    weights = safetensors.torch.load((bundle / WEIGHTS).read_bytes())
    parts = Familiarity(Statistics.empty(2, foster.load(bundle).knowledge.network.feature_size), torch.ones(2, 2), 0.1)
    whole = weights | parts.tensors(has_statistics=True)
    forge(bundle, {WEIGHTS: safetensors.torch.save(whole)})
    foster.load(bundle, device="cpu").try_out()
    forge(bundle, {WEIGHTS: safetensors.torch.save(whole | {f"familiarity.{name}": value})})
    assert_refused(lambda: foster.load(bundle, device="cpu"), str(bundle))


def test_promote_finds_what_serve_could_not_load(bundle: Path) -> None:
    weights = safetensors.torch.load((bundle / "network.safetensors").read_bytes())
    for change in ({"head.weight": weights["head.weight"] * torch.nan}, {"head.weight": None}):
        changed = {name: tensor for name, tensor in (weights | change).items() if tensor is not None}
        forge(bundle, {WEIGHTS: safetensors.torch.save(changed)})
        assert_refused(lambda: promote_bundle(bundle), str(bundle))
    assert not (bundle.parent / "current").is_symlink()
