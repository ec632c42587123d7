"""The content of `bundle.json`. All of it is checked when it is read: a bundle may come from a stranger."""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field, JsonValue, model_validator
from pydantic_core import to_json

from foster.bundle.history import checked_entry
from foster.settings.fit import Frozen
from foster.settings.learner_defaults import SIDES
from foster.system.documents import Count, Sha256
from foster.system.files import sha256

SCHEMA: Final = 3
FORMAT: Final = "foster bundle"
WEIGHTS: Final = "network.safetensors"
FEATURES: Final = "features.safetensors"
LABELS: Final = "labels.txt"
PHOTOS: Final = "photos.zip"
MAX_TASKS, MAX_CLASSES, MAX_PHOTOS = 10_000, 100_000, 2_000_000


def _one_line(name: str) -> str:
    if not name.strip() or name.splitlines() != [name]:
        raise ValueError("a class has no name, or one of several lines")
    return name


Use = Literal["exemplars", "held-out"]
Side = Annotated[int, Field(ge=1, le=SIDES[1])]
Mean = Annotated[float, Field(ge=-1e6, le=1e6)]
Spread = Annotated[float, Field(ge=1e-6, le=1e6)]
ClassName = Annotated[str, Field(max_length=1000), AfterValidator(_one_line)]
"""Its length is limited, because the memory for a figure grows with the square of the length."""
FileName = Literal["network.safetensors", "features.safetensors", "labels.txt", "photos.zip"]
"""The files beside `bundle.json`."""
PhotoName = Annotated[str, Field(pattern=r"^(exemplars|held-out)/[0-9]{4,9}/[0-9]{4,9}-[0-9a-f]{12}\.(jpg|png)$")]
"""In photos.zip: use, class id, position, and the start of the hash of the pixels."""


class Preprocessing(Frozen):
    """From a picture to the input of the network: resized to height x width, then (pixel / 255 - mean) / std."""

    height: Side
    width: Side
    mean: tuple[Mean, Mean, Mean]
    std: tuple[Spread, Spread, Spread]

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        return self.height, self.width


class FileFacts(Frozen):
    sha256: Sha256
    bytes: Count


class ExemplarFile(Frozen):
    """One image in photos.zip. The order of the entries is the selection order."""

    file: PhotoName
    class_id: Count
    use: Use

    @property
    def id(self) -> str:
        """The start of the hash of the pixels, which an image keeps in every bundle."""
        return self.file.rpartition("-")[2].partition(".")[0]


class Manifest(Frozen):
    """The content of `bundle.json`."""

    format: Literal["foster bundle"] = FORMAT
    schema_version: Literal[3] = SCHEMA
    foster: str
    method: str
    backbone: str
    settings: dict[str, JsonValue]
    classes: tuple[ClassName, ...] = Field(min_length=1, max_length=MAX_CLASSES)
    task_sizes: tuple[Count, ...] = Field(min_length=1, max_length=MAX_TASKS)
    preprocessing: Preprocessing
    temperature: float = Field(ge=1e-6, le=1e6)
    num_calibration_images: Count
    """How many held-out images the temperature was fitted on; 0 if it was not fitted."""
    history: tuple[Annotated[dict[str, JsonValue], AfterValidator(checked_entry)], ...] = Field(max_length=MAX_TASKS)
    exemplars: tuple[ExemplarFile, ...] = Field(max_length=MAX_PHOTOS)
    files: dict[FileName, FileFacts]

    @model_validator(mode="after")
    def _fits_together(self) -> "Manifest":
        if sum(self.task_sizes) != len(self.classes):
            raise ValueError(f"tasks of {sum(self.task_sizes)} classes for {len(self.classes)} class names")
        if len(set(self.classes)) != len(self.classes):
            raise ValueError("two classes have the same name")
        if any(entry.class_id >= len(self.classes) for entry in self.exemplars):
            raise ValueError("an exemplar belongs to no class")
        if len({entry.file for entry in self.exemplars}) != len(self.exemplars):
            raise ValueError("one file is listed as two exemplars")
        if WEIGHTS not in self.files or (self.exemplars and PHOTOS not in self.files):
            raise ValueError("no hash of the weights or of the photos")
        return self

    @property
    def plugins(self) -> tuple[str, ...]:
        """The plug-in modules of its method and backbone."""
        named = self.settings.get("plugins", [])
        return tuple(map(str, named)) if isinstance(named, list) else ()

    def text(self) -> str:
        """`bundle.json`: the facts and, as `sha256`, their own hash."""
        data = self.model_dump(mode="json")
        return to_json({**data, "sha256": digest_of(data)}, indent=1).decode() + "\n"


def digest_of(data: Mapping[str, Any]) -> str:
    """The hash of a manifest's facts."""
    return sha256(json.dumps(data, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode())
