"""The network as an ONNX file for other programs, with normalisation and calibration; its labels are in a JSON file.

The exported program takes uint8 pictures `[batch, height, width, 3]` and gives probabilities `[batch, classes]`.
That program decodes and resizes the pictures: the JSON file says how.
"""

import io
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from foster.data.photos.decode import BACKGROUND, DRAFT_PIXELS
from foster.errors import FosterError, SettingsError, words_of
from foster.learner.classifier import Classifier
from foster.learner.knowledge import Knowledge
from foster.seeding import Address, generator
from foster.system.files import user_path, write_bytes, write_json
from foster.version import __version__

INPUT, OUTPUT = "images", "probabilities"
TOLERANCE = 1e-3
MAX_CHECKED = 128


class ExportError(FosterError):
    """The exported file differs from the network, or could not be made."""

    exit_code = 1


@dataclass(frozen=True)
class ExportReport:
    """The files that were written, and the largest difference between their probabilities and PyTorch's."""

    file: Path
    facts_file: Path
    num_bytes: int
    num_checked: int
    largest_difference: float


class Exported(nn.Module):
    """uint8 `[N, H, W, 3]`, the layout of pictures in every language, to probabilities `[N, num_classes]`."""

    def __init__(self, classifier: Classifier) -> None:
        super().__init__()
        self.classifier = classifier

    def forward(self, images: Tensor) -> Tensor:
        probabilities: Tensor = self.classifier(images.permute(0, 3, 1, 2))
        return probabilities


Run = Callable[[NDArray[np.uint8]], NDArray[np.float32]]
"""An exported file, loaded: pictures to probabilities."""


def export_classifier(knowledge: Knowledge, file: Path) -> ExportReport:
    """Write `file` and its JSON file, completely, and only if its probabilities agree with PyTorch's."""
    file = user_path(file)
    check_target(file)
    module = Exported(knowledge.classifier(torch.device("cpu"))).eval()
    pictures = _pictures(knowledge)
    facts = export_facts(knowledge)
    # In memory until it is checked: the libraries' own writers abort the process if the disk is full.
    with _quiet():
        # Two pictures, since the exporter takes a batch of one for the only size.
        example = torch.zeros(2, *knowledge.preprocessing.size, 3, dtype=torch.uint8)
        content, run = as_onnx(module, example)
    difference = _largest_difference(module, run, pictures)
    write_bytes(file, content)
    facts_file = file.with_name(f"{file.name}.json")
    write_json(facts_file, facts)
    return ExportReport(file, facts_file, len(content), len(pictures), difference)


def export_facts(knowledge: Knowledge) -> dict[str, Any]:
    """All that a program needs to use the exported file."""
    preprocessing = knowledge.preprocessing
    return {
        "format": "foster export",
        "foster": __version__,
        "labels": list(knowledge.class_names),
        "input": {
            "name": INPUT,
            "type": "uint8",
            "shape": ["batch", preprocessing.height, preprocessing.width, 3],
            "order": "batch, height, width, RGB",
            "upright": "apply the EXIF orientation",
            "background": list(BACKGROUND),
            "sixteen_bits": "divide grey values of 16 bits by 257 first; Pillow's convert would cut them off",
            "resize": "to width x height (bilinear), whatever the aspect",
            "large_jpegs": f"of more than {DRAFT_PIXELS:,} pixels, foster decodes a half, a quarter or an eighth of "
            "the size, at least four times width x height; resizing all of it gives nearly the same",
        },
        "output": {"name": OUTPUT, "type": "float32", "shape": ["batch", knowledge.num_classes]},
        "inside": {
            "mean": list(preprocessing.mean),
            "std": list(preprocessing.std),
            "temperature": knowledge.temperature,
        },
        "is_calibrated": knowledge.num_calibration_images > 0,
    }


def _pictures(knowledge: Knowledge) -> Tensor:
    """Pictures for the check, uint8 `[N, H, W, 3]`: exemplars, or noise if there are none."""
    images = knowledge.images_of(knowledge.exemplars).stack
    if len(images):
        stride = -(-len(images) // MAX_CHECKED)
        return images[::stride].on_device(torch.device("cpu")).permute(0, 2, 3, 1).contiguous()
    shape = (16, *knowledge.preprocessing.size, 3)
    return torch.randint(256, shape, dtype=torch.uint8, generator=generator(Address(0, "export")))


def _largest_difference(module: Exported, run: Run, pictures: Tensor) -> float:
    """The largest difference from PyTorch, in batches of several sizes. Raises ExportError if it is above TOLERANCE."""
    largest = 0.0
    # A batch of one and an odd last batch show whether the number of images is really free.
    for batch in (pictures[:1], *pictures.split(61)):
        with torch.no_grad():
            expected = module(batch).numpy()
        largest = float(np.maximum(largest, np.abs(run(batch.numpy()) - expected).max()))  # NaN stays NaN
    if not largest <= TOLERANCE:
        raise ExportError(
            f"the exported file differs from PyTorch by {largest:.2g} in probability, more than {TOLERANCE:g}; "
            "nothing was written"
        )
    return largest


def as_onnx(module: Exported, example: Tensor) -> tuple[bytes, Run]:
    """The content of the ONNX file, and a function that runs it."""
    try:
        import onnx
        import onnxruntime
        import onnxscript  # noqa: F401 (torch needs it to export)
    except ImportError as error:
        raise SettingsError(f"ONNX export needs {error.name}: pip install 'foster-cil[export]'") from None
    batch = torch.export.Dim("batch")
    program = torch.onnx.export(
        module,
        (example,),
        dynamo=True,
        input_names=[INPUT],
        output_names=[OUTPUT],
        dynamic_shapes={"images": {0: batch}},
        external_data=False,
        verbose=False,
    )
    assert program is not None
    model = program.model_proto
    for node in (*model.graph.node, *(node for function in model.functions for node in function.node)):
        node.ClearField("metadata_props")  # source lines, with the folders of this machine
    onnx.checker.check_model(model)
    content: bytes = model.SerializeToString()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    return content, lambda images: np.asarray(session.run([OUTPUT], {INPUT: images})[0])


def check_target(file: Path) -> None:
    """Refuse a name with another ending."""
    if file.suffix.lower() != ".onnx":
        raise SettingsError(f"cannot export to '{file}': the file's name must end in .onnx")


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide the output of the exporters; a failure becomes an ExportError."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    except FosterError:
        raise
    except Exception as error:
        raise ExportError(f"the network cannot be exported: {words_of(error)}") from None
    finally:
        logging.disable(level)
