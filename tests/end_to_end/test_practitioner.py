"""A classifier in use: learn, delete the photos, load, learn more, predict, ship. Digits as PNG folders."""

import json
import shutil
from pathlib import Path

from commands import Command, write_photos
from safetensors.torch import load_file

import foster
from foster.bundle.folder import folder_bytes, read_manifest
from foster.learner.familiarity import PREFIX as FAMILIARITY

SETTINGS = ("--quiet", "backbone=resnet8", "device=cpu", "epochs_scale=0.04", "batch_size=32", "memory_total=100")


def test_learn_delete_load_learn_more_predict(command: Command, tmp_path: Path) -> None:
    """Two digits, a third one, and then a fourth with more of the second."""

    def run(*arguments: object) -> str:
        """`foster` with these arguments; gives what it prints."""
        done = command(*arguments)
        assert not done.code, done.err
        return done.out

    bundles = [tmp_path / "bundles" / name for name in ("january", "february", "march")]

    first = write_photos(tmp_path / "first", zero=50, one=50)
    run("learn", first, "--bundle", bundles[0], *SETTINGS, "--promote")
    shutil.rmtree(first)

    second = write_photos(tmp_path / "second", two=50)
    run("learn", second, "--from", bundles[0], "--bundle", bundles[1], *SETTINGS, "--max-drop", 10, "--promote")
    shutil.rmtree(second)

    third = write_photos(tmp_path / "third", three=50)
    write_photos(third, one=130, first=100)
    told = run("learn", third, "--from", tmp_path / "bundles" / "current", "--bundle", bundles[2], *SETTINGS)
    shutil.rmtree(third)
    assert "new classes: three" in told
    assert "more of: one (+" in told

    test = write_photos(tmp_path / "test", zero=70, one=70, two=70, three=70, first=50)
    learner = foster.load(bundles[2], device="cpu")
    assert learner.class_names == ("one", "zero", "two", "three")
    evaluation = learner.evaluate(test)
    assert evaluation.num_images == 20 * 4
    assert evaluation.accuracy >= 75
    lines = run("predict", bundles[2], test, "--json", "--top", 10, "--device", "cpu").splitlines()
    assert [json.loads(line) for line in lines] == [found.record() for found in learner.predict(test, top=10)]
    assert_size_is_bounded(bundles)


def assert_size_is_bounded(bundles: list[Path]) -> None:
    """The network grows by head rows of 65 numbers, a class each, and the images keep to their budget."""
    weights = [_network_bytes(bundle) for bundle in bundles]
    head_rows = 65 * 4 * 2
    assert weights[2] - weights[0] == head_rows
    images = [len(read_manifest(bundle).exemplars) for bundle in bundles]
    assert max(images) <= 100
    beside = [_tensor_bytes(bundle) - size for bundle, size in zip(bundles, weights, strict=True)]
    assert max(beside) < 100_000, "what is usual for known photos is two covariances of 64 features, and not more"
    sizes = [folder_bytes(bundle) - size for bundle, size in zip(bundles, beside, strict=True)]
    assert sizes[2] < sizes[0] + head_rows + 10_000


def _network_bytes(bundle: Path) -> int:
    """Of the weights alone: what is usual for known photos is kept beside them."""
    return _tensor_bytes(bundle, left_out=FAMILIARITY)


def _tensor_bytes(bundle: Path, left_out: str = "-") -> int:
    tensors = load_file(bundle / "network.safetensors")
    return sum(tensor.nbytes for name, tensor in tensors.items() if not name.startswith(left_out))
