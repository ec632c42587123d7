"""A classifier in use: learn, delete the photos, load, learn more, predict, ship. Digits as PNG folders."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import foster
from foster.bundle.files import folder_bytes
from foster.data.images import ImageSet
from foster.data.sources import load as load_dataset
from foster.errors import DataError

DIGITS = load_dataset("digits")
SETTINGS = ("--preset", "fast", "--quiet", "backbone=resnet8", "memory_total=200", "device=cpu")


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


def command(*arguments: object) -> str:
    """The real command, in a process of its own: nothing but files goes from one call to the next."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "foster", *map(str, arguments)], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_learn_delete_load_learn_more_predict_and_ship(tmp_path: Path) -> None:
    bundles = [tmp_path / "bundles" / name for name in ("january", "february", "march")]

    first = write_photos(tmp_path / "first", range(5), keep=lambda k: k < 100)
    command("learn", first, "--bundle", bundles[0], *SETTINGS, "--promote")
    shutil.rmtree(first)

    second = write_photos(tmp_path / "second", range(5, 8))
    command("learn", second, "--from", bundles[0], "--bundle", bundles[1], *SETTINGS, "--max-drop", 10, "--promote")
    shutil.rmtree(second)

    third = write_photos(tmp_path / "third", [8, 9])
    write_photos(third, [3], keep=lambda k: k >= 100)
    told = command("learn", third, "--from", tmp_path / "bundles" / "current", "--bundle", bundles[2], *SETTINGS)
    shutil.rmtree(third)
    assert "new classes: 8, 9" in told
    assert "more of: 3 (+" in told

    test = write_photos(tmp_path / "test", range(10), DIGITS.test)
    learner = foster.load(bundles[2], device="cpu")
    assert learner.class_names == tuple(map(str, range(10)))
    evaluation = learner.evaluate(test)
    assert evaluation.num_images == len(DIGITS.test)
    assert evaluation.accuracy >= 90
    assert_predictions_agree(learner, bundles[2], test, tmp_path)
    assert_size_is_bounded(bundles)


def assert_predictions_agree(learner: foster.Learner, bundle: Path, test: Path, scratch: Path) -> None:
    """The command, Python and the ONNX file give the same classes with the same probabilities, in the same order."""
    import onnxruntime

    lines = command("predict", bundle, test, "--json", "--top", 10, "--device", "cpu").splitlines()
    by_command = [json.loads(line) for line in lines]
    by_python = learner.predict(test, top=10)
    assert by_command == [found.record() for found in by_python]

    learner.export(scratch / "digits.onnx")
    labels = json.loads((scratch / "digits.onnx.json").read_text(encoding="utf-8"))["labels"]
    session = onnxruntime.InferenceSession(scratch / "digits.onnx", providers=["CPUExecutionProvider"])
    pictures = [np.asarray(Image.open(found.name).convert("RGB")) for found in by_python]
    (by_onnx,) = session.run(["probabilities"], {"images": np.stack(pictures)})
    for found, row in zip(by_python, by_onnx, strict=True):
        assert max(abs(row[labels.index(entry.label)] - entry.probability) for entry in found.top) < 1e-3
    assert [labels[k] for k in by_onnx.argmax(1)] == [found.label for found in by_python]


def assert_size_is_bounded(bundles: list[Path]) -> None:
    """From 5 to 10 classes the weights grow by head rows of 65 numbers, and the images keep to their budget."""
    weights = [(bundle / "network.safetensors").stat().st_size for bundle in bundles]
    head_row = 65 * 4
    assert weights[2] - weights[0] == pytest.approx(5 * head_row, abs=64)
    images = [len(list(bundle.rglob("*.png"))) for bundle in bundles]
    assert max(images) <= 200
    assert folder_bytes(bundles[2]) < folder_bytes(bundles[0]) + 5 * head_row + 10_000


@pytest.mark.slow
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
