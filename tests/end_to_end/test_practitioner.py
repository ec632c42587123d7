"""A classifier in use: learn, delete the photos, load, learn more, predict, ship. Digits as PNG folders."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from PIL import Image
from safetensors.torch import load_file

import foster
from foster.bundle.files import folder_bytes
from foster.cli import main
from foster.data.images import ImageSet
from foster.data.sources import load as load_dataset
from foster.errors import DataError
from foster.learner.familiarity import PREFIX as FAMILIARITY
from foster.learner.reports import Prediction

DIGITS = load_dataset("digits")
SETTINGS = ("--quiet", "backbone=resnet8", "device=cpu")

Command = Callable[..., str]
"""`foster` with these arguments; gives what it prints."""


class Story(NamedTuple):
    """Which digits come when, and how each month is learned."""

    first: range
    second: range
    third: range
    comes_again: int
    num_images: int
    memory_total: int
    options: tuple[object, ...]
    is_exported: bool = False

    @property
    def num_classes(self) -> int:
        return self.third.stop


WHOLE = Story(range(5), range(5, 8), range(8, 10), 3, 200, 200, ("--training", "fast"), is_exported=True)
SHORT = Story(range(2), range(2, 3), range(3, 4), 1, 50, 100, ("epochs_scale=0.06",))


def write_photos(
    folder: Path, digits: range | list[int], data: ImageSet = DIGITS.train, keep: Callable[[int], bool] = lambda k: True
) -> Path:
    for digit in digits:
        images = data.of_classes(digit, digit + 1).images
        (folder / str(digit)).mkdir(parents=True)
        for k, image in enumerate(images):
            if keep(k):
                Image.fromarray(image[0].numpy()).save(folder / str(digit) / f"photo {k:03d}.png")
    return folder


def real_command(*arguments: object) -> str:
    """The real command, in a process of its own: nothing but files goes from one call to the next."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "foster", *map(str, arguments)], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def quick_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """The same in this process, which has imported everything already."""

    def run(*arguments: object) -> str:
        monkeypatch.setattr("sys.argv", ["foster", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        assert not ended.value.code, err
        return out

    return run


@pytest.mark.slow
def test_learn_delete_load_learn_more_predict_and_ship(tmp_path: Path) -> None:
    tell(WHOLE, real_command, tmp_path)


def test_learn_delete_load_learn_more_predict_and_ship_in_short(quick_command: Command, tmp_path: Path) -> None:
    tell(SHORT, quick_command, tmp_path)


def tell(story: Story, command: Command, tmp_path: Path) -> None:
    bundles = [tmp_path / "bundles" / name for name in ("january", "february", "march")]
    settings = (*SETTINGS, *story.options, f"memory_total={story.memory_total}")

    first = write_photos(tmp_path / "first", story.first, keep=lambda k: k < min(100, story.num_images))
    command("learn", first, "--bundle", bundles[0], *settings, "--promote")
    shutil.rmtree(first)

    second = write_photos(tmp_path / "second", story.second, keep=lambda k: k < story.num_images)
    command("learn", second, "--from", bundles[0], "--bundle", bundles[1], *settings, "--max-drop", 10, "--promote")
    shutil.rmtree(second)

    third = write_photos(tmp_path / "third", story.third, keep=lambda k: k < story.num_images)
    write_photos(third, [story.comes_again], keep=lambda k: 100 <= k < 100 + story.num_images)
    told = command("learn", third, "--from", tmp_path / "bundles" / "current", "--bundle", bundles[2], *settings)
    shutil.rmtree(third)
    assert f"new classes: {', '.join(map(str, story.third))}" in told
    assert f"more of: {story.comes_again} (+" in told

    test = write_photos(tmp_path / "test", range(story.num_classes), DIGITS.test)
    learner = foster.load(bundles[2], device="cpu")
    assert learner.class_names == tuple(map(str, range(story.num_classes)))
    evaluation = learner.evaluate(test)
    assert evaluation.num_images == len(DIGITS.test.of_classes(0, story.num_classes))
    assert evaluation.accuracy >= 90
    by_python = assert_command_agrees(command, learner, bundles[2], test)
    if story.is_exported:  # which takes seconds; tests/learner/test_export.py has small ones
        assert_onnx_agrees(learner, by_python, tmp_path)
    assert_size_is_bounded(bundles, story)


def assert_command_agrees(command: Command, learner: foster.Learner, bundle: Path, test: Path) -> Sequence[Prediction]:
    """The command and Python give the same classes with the same probabilities, in the same order."""
    lines = command("predict", bundle, test, "--json", "--top", 10, "--device", "cpu").splitlines()
    by_command = [json.loads(line) for line in lines]
    by_python = learner.predict(test, top=10)
    assert by_command == [found.record() for found in by_python]
    return by_python


def assert_onnx_agrees(learner: foster.Learner, by_python: Sequence[Prediction], scratch: Path) -> None:
    import onnxruntime

    learner.export(scratch / "digits.onnx")
    labels = json.loads((scratch / "digits.onnx.json").read_text(encoding="utf-8"))["labels"]
    session = onnxruntime.InferenceSession(scratch / "digits.onnx", providers=["CPUExecutionProvider"])
    pictures = [np.asarray(Image.open(found.name).convert("RGB")) for found in by_python]
    (by_onnx,) = session.run(["probabilities"], {"images": np.stack(pictures)})
    for found, row in zip(by_python, by_onnx, strict=True):
        assert max(abs(row[labels.index(entry.label)] - entry.probability) for entry in found.top) < 1e-3
    assert [labels[k] for k in by_onnx.argmax(1)] == [found.label for found in by_python]


def assert_size_is_bounded(bundles: list[Path], story: Story) -> None:
    """The network grows by head rows of 65 numbers, a class each, and the images keep to their budget."""
    weights = [_network_bytes(bundle) for bundle in bundles]
    head_rows = 65 * 4 * (story.num_classes - len(story.first))
    assert weights[2] - weights[0] == head_rows
    images = [len(list(bundle.rglob("*.png"))) for bundle in bundles]
    assert max(images) <= story.memory_total
    beside = [_tensor_bytes(bundle) - size for bundle, size in zip(bundles, weights, strict=True)]
    assert max(beside) < 100_000, "what is usual for known photos is two covariances of 64 features, and not more"
    sizes = [folder_bytes(bundle) - size for bundle, size in zip(bundles, beside, strict=True)]
    assert sizes[2] < sizes[0] + head_rows + 10_000


def test_the_next_learn_needs_only_the_bundle(tmp_path: Path) -> None:
    """Nothing in a bundle points outside: it works in another place, and what it was made from is not missed."""
    photos = write_photos(tmp_path / "here" / "photos", range(2), keep=lambda k: k < 30)
    learner = foster.Learner(backbone="resnet8", epochs_scale=0.02, memory_total=20, device="cpu")
    learner.learn(photos)
    learner.save(tmp_path / "here" / "bundle")
    shutil.copytree(tmp_path / "here" / "bundle", tmp_path / "there")
    shutil.rmtree(tmp_path / "here")
    text = "".join(path.read_text(encoding="utf-8") for path in (tmp_path / "there").glob("*.json"))
    assert str(tmp_path) not in text
    again = foster.load(tmp_path / "there", device="cpu")
    with pytest.raises(DataError, match="there is no folder"):
        again.learn(photos)
    again.learn(write_photos(tmp_path / "more", [2], keep=lambda k: k < 30))
    assert again.class_names == ("0", "1", "2")


def _network_bytes(bundle: Path) -> int:
    """Of the weights alone: what is usual for known photos is kept beside them."""
    return _tensor_bytes(bundle, left_out=FAMILIARITY)


def _tensor_bytes(bundle: Path, left_out: str = "-") -> int:
    tensors = load_file(bundle / "network.safetensors")
    return sum(tensor.nbytes for name, tensor in tensors.items() if not name.startswith(left_out))
