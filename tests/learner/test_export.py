"""Exported files run without this library and give the same probabilities."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import torch
from faults import FullDisk
from PIL import ExifTags, Image
from registries import registries_kept
from safetensors.torch import save_file
from torch import nn
from typer.testing import CliRunner

import foster
from foster.cli import app
from foster.data.sources import load as load_dataset
from foster.errors import FolderError
from foster.learner import export as exporting
from foster.learner.export import Exported, ExportError, ExportReport, Run
from foster.learner.learner import Learner
from foster.networks import build_backbone

DIGITS = load_dataset("digits")
COLOURED = (DIGITS.test.images * torch.tensor([1.0, 0.6, 0.2]).view(3, 1, 1)).to(torch.uint8)


Make = Callable[[Exported, torch.Tensor], tuple[bytes, Run]]


def made_at_once(spoil: Callable[[np.ndarray], np.ndarray] = lambda found: found) -> Make:
    """In place of `as_onnx`, for which torch traces the network for seconds: a file that gives what the network gives,
    but spoilt."""

    def make(module: Exported, example: torch.Tensor) -> tuple[bytes, Run]:
        def run(images: np.ndarray) -> np.ndarray:
            with torch.no_grad():
                return spoil(module(torch.from_numpy(images)).numpy())

        return b"a file", run

    return make


@pytest.fixture(scope="module")
def learner() -> Iterator[Learner]:
    """Knows three digits, by a backbone that is traced in less time than one of ours."""
    with registries_kept():

        @foster.register_backbone("few")
        def few() -> nn.Module:
            return nn.Sequential(nn.Conv2d(3, 16, 3, stride=2), nn.BatchNorm2d(16), nn.ReLU())

        yield learned("closed_form", "few", 90)


def learned(method: str, backbone: str, memory_total: int) -> Learner:
    """Knows three digits, in closed form by a random backbone or trained."""
    with TemporaryDirectory() as folder:
        torch.manual_seed(5)
        save_file(build_backbone(backbone).state_dict(), f"{folder}/weights.safetensors")
        is_frozen = method == "closed_form"
        start = {"weights": f"{folder}/weights.safetensors"} if is_frozen else {"epochs_scale": 0.01}
        learner = foster.Learner(method, backbone=backbone, memory_total=memory_total, device="cpu", **start)
        learner.learn(DIGITS.train.of_classes(0, 3).select(torch.arange(0, 420, 3)))
    return learner


@pytest.fixture(scope="module")
def onnx_file(learner: Learner, tmp_path_factory: pytest.TempPathFactory) -> ExportReport:
    return learner.export(tmp_path_factory.mktemp("onnx") / "digits.onnx")


def pictures(count: int) -> np.ndarray:
    """`[count, 8, 8, 3]` uint8, as any program holds pictures."""
    return COLOURED[:count].permute(0, 2, 3, 1).contiguous().numpy()


def expected(learner: Learner, count: int) -> np.ndarray:
    found = learner.predict(COLOURED[:count], top=3)
    by_name = [{entry.label: entry.probability for entry in one.top} for one in found]
    return np.array([[row[name] for name in learner.class_names] for row in by_name])


@pytest.mark.parametrize("count", [1, 2, 7, 64])
def test_the_onnx_file_gives_the_learners_probabilities_for_any_number_of_images(
    learner: Learner, onnx_file: ExportReport, count: int
) -> None:
    import onnxruntime

    session = onnxruntime.InferenceSession(onnx_file.file, providers=["CPUExecutionProvider"])
    (given,) = session.get_inputs()
    assert (given.name, given.type, given.shape[1:]) == ("images", "tensor(uint8)", [8, 8, 3])
    (found,) = session.run(["probabilities"], {"images": pictures(count)})
    assert found.shape == (count, 3)
    assert np.abs(found - expected(learner, count)).max() < 1e-4


def test_the_onnx_file_says_nothing_of_the_folders_of_the_machine_that_made_it(onnx_file: ExportReport) -> None:
    content = onnx_file.file.read_bytes()
    for folder in (Path(foster.__file__).parent, Path(torch.__file__).parent):
        assert str(folder).encode() not in content


def test_labels_and_preprocessing_are_beside_the_onnx_file(learner: Learner, onnx_file: ExportReport) -> None:
    assert {path.name for path in onnx_file.file.parent.iterdir()} == {"digits.onnx", "digits.onnx.json"}
    beside = json.loads(onnx_file.facts_file.read_text(encoding="utf-8"))
    assert beside["labels"] == list(learner.class_names)
    assert beside["input"]["shape"] == ["batch", 8, 8, 3]
    known = learner.knowledge
    values = {"mean": list(known.preprocessing.mean), "std": list(known.preprocessing.std)}
    assert beside["inside"] == {**values, "temperature": known.temperature}


def test_a_file_is_checked_on_the_exemplars_before_it_is_reported(onnx_file: ExportReport, learner: Learner) -> None:
    assert onnx_file.num_checked == learner.knowledge.exemplars.num_images
    assert onnx_file.largest_difference < 1e-5


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda found: found[:, ::-1] if len(found) > 1 else found, "differs from PyTorch by"),
        (lambda found: found * np.nan, "differs from PyTorch by nan"),
    ],
)
def test_a_file_that_differs_from_pytorch_is_not_left_behind(
    learner: Learner,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    spoil: Callable[[np.ndarray], np.ndarray],
    message: str,
) -> None:
    monkeypatch.setattr(exporting, "as_onnx", made_at_once(spoil))
    with pytest.raises(ExportError, match=message):
        learner.export(tmp_path / "spoilt.onnx")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_nearest_means_are_exported_too(tmp_path: Path) -> None:
    import onnxruntime

    learner = learned("icarl", "resnet8", 30)
    session = onnxruntime.InferenceSession(learner.export(tmp_path / "digits.onnx").file)
    (found,) = session.run(["probabilities"], {"images": pictures(9)})
    assert np.abs(found - expected(learner, 9)).max() < 1e-4


def test_the_command_exports_a_bundle_and_tells_on_how_many_images_it_was_checked(
    learner: Learner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting, "as_onnx", made_at_once())
    file = tmp_path / "digits.onnx"
    done = CliRunner().invoke(app, ["export", str(learner.save(tmp_path / "v1")), str(file)])
    assert done.exit_code == 0, done.output
    assert f"checked on {learner.knowledge.exemplars.num_images} images" in " ".join(done.output.split())
    assert file.read_bytes() == b"a file"


@pytest.mark.parametrize("name", ["x.onnx", "x.onnx.json"])
def test_a_full_disk_is_one_line_and_leaves_nothing_half_written(
    name: str, learner: Learner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting, "as_onnx", made_at_once())
    disk = FullDisk(name, 0)
    with monkeypatch.context() as patch:
        patch.setattr("os.write", disk)
        with pytest.raises(FolderError, match="No space left"):
            learner.export(tmp_path / "x.onnx")
    assert disk.has_failed
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_the_program_in_the_docs_answers_as_predict_does(
    learner: Learner, onnx_file: ExportReport, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "photos.md").read_text(encoding="utf-8")
    (program,) = (block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "onnxruntime" in block)
    monkeypatch.chdir(onnx_file.file.parent)
    turned = Image.Exif()
    turned[ExifTags.Base.Orientation] = 6
    Image.fromarray(pictures(3)[2]).resize((30, 20)).save("photo.jpg", exif=turned)
    exec(program, {})
    label, probability = capsys.readouterr().out.split()
    (answer,) = learner.predict("photo.jpg", top=1)
    assert (label, float(probability)) == (answer.label, pytest.approx(answer.confidence, abs=1e-4))
    Path("photo.jpg").unlink()
