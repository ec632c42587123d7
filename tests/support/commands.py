"""The command `foster` in this process, and small things to give it."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from PIL import Image

from foster.cli import main
from foster.data.sources import load as load_dataset

TINY = (
    "dataset=synthetic",
    "synthetic={num_classes=4, train_per_class=8, test_per_class=3, image_size=8}",
    "base_classes=2",
    "increment=2",
    "memory_total=8",
    "epochs_scale=0.005",
    "device=cpu",
    "engine.threads=1",
)

DIGITS = load_dataset("digits")
QUICK = ("backbone=resnet8", "batch_size=64", "epochs_scale=0.02", "memory_total=60", "device=cpu")


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


Command = Callable[..., Outcome]


def write_photos(folder: Path, *, first: int = 0, **counts: int) -> Path:
    """Digits as PNG files, a subfolder a class: of `three=20` those before the twentieth, from `first` on."""
    for name, count in counts.items():
        (folder / name).mkdir(parents=True)
        class_id = DIGITS.train.class_names.index(name)
        for k, image in enumerate(DIGITS.train.of_classes(class_id, class_id + 1).images[first:count]):
            Image.fromarray(image[0].numpy()).save(folder / name / f"{k}.png")
    return folder


def run_main(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: object) -> Outcome:
    monkeypatch.setattr("sys.argv", ["foster", *map(str, arguments)])
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main()
    code = ended.value.code
    out, err = capsys.readouterr()
    return Outcome(code if isinstance(code, int) else 0 if code is None else 1, out, err)


def python(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=cwd, capture_output=True, text=True, timeout=120)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
