"""The content of `bundle.json`. All of it is checked when it is read: a bundle may come from a stranger."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, JsonValue, model_validator

from foster.bundle.files import MANIFEST, SAFE_PATH, WEIGHTS, BundleError, read_checked, real_folder, sha256
from foster.bundle.history import checked_entry
from foster.settings.fit import Frozen
from foster.settings.learner_defaults import SIDES
from foster.system.documents import Count, DocumentError, Sha256, checked, read_json

SCHEMA: Literal[2] = 2
FORMAT = "foster bundle"
LABELS = "labels.txt"
FEATURES = "features.safetensors"
MAX_MANIFEST_BYTES = 256 * 2**20
MAX_TASKS, MAX_CLASSES, MAX_FILES = 10_000, 100_000, 2_000_000


def _one_line(name: str) -> str:
    if not name.strip() or name.splitlines() != [name]:
        raise ValueError("a class has no name, or one of several lines")
    return name


def _inside(name: str) -> str:
    """A stranger's file names must not lead out of the bundle."""
    if not SAFE_PATH.fullmatch(name) or ".." in name or len(name) > 255:
        raise ValueError(f"no bundle may name a file {name[:80]!r}")
    return name


Use = Literal["exemplars", "held-out"]
Side = Annotated[int, Field(ge=1, le=SIDES[1])]
Mean = Annotated[float, Field(ge=-1e6, le=1e6)]
Spread = Annotated[float, Field(ge=1e-6, le=1e6)]
ClassName = Annotated[str, Field(max_length=4096), AfterValidator(_one_line)]
FileName = Annotated[str, AfterValidator(_inside)]


class Preprocessing(Frozen):
    """From a picture to what the network sees: resized to height x width, then (pixel / 255 - mean) / std."""

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
    """One stored image. The order of the entries is the selection order."""

    file: FileName
    class_id: Count
    use: Use

    @property
    def id(self) -> str:
        """The start of the hash of the pixels, which an image keeps in every bundle."""
        return Path(self.file).stem.rpartition("-")[2]


class Manifest(Frozen):
    """What `bundle.json` holds."""

    format: Literal["foster bundle"] = "foster bundle"
    schema_version: Literal[2] = SCHEMA
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
    exemplars: tuple[ExemplarFile, ...] = Field(max_length=MAX_FILES)
    files: dict[FileName, FileFacts] = Field(max_length=MAX_FILES)

    @model_validator(mode="after")
    def _fits_together(self) -> "Manifest":
        if sum(self.task_sizes) != len(self.classes):
            raise ValueError(f"tasks of {sum(self.task_sizes)} classes for {len(self.classes)} class names")
        if len(set(self.classes)) != len(self.classes):
            raise ValueError("two classes have the same name")
        if any(entry.class_id >= len(self.classes) for entry in self.exemplars):
            raise ValueError("an exemplar belongs to no class")
        images = {entry.file for entry in self.exemplars}
        if len(images) != len(self.exemplars):
            raise ValueError("one file is listed as two exemplars")
        unlisted = {WEIGHTS, *images} - self.files.keys()
        if unlisted:
            raise ValueError(f"no hash of '{min(unlisted)}'")
        return self

    @property
    def plugins(self) -> tuple[str, ...]:
        """The plug-in modules of its method and backbone."""
        named = self.settings.get("plugins", [])
        return tuple(map(str, named)) if isinstance(named, list) else ()

    def text(self) -> str:
        """`bundle.json`: the facts and, as `sha256`, their own hash."""
        data = self.model_dump(mode="json")
        return json.dumps({**data, "sha256": _digest(data)}, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def read_manifest(folder: Path) -> Manifest:
    """Read and check `bundle.json`; the other files are not read."""
    path = real_folder(folder) / MANIFEST
    try:
        data = read_json(path, max_bytes=MAX_MANIFEST_BYTES)
    except FileNotFoundError:
        hint = f"; did you mean '{folder / 'current'}'?" if (folder / "current" / MANIFEST).exists() else ""
        raise BundleError(f"'{folder}' is not a bundle: it has no {MANIFEST}{hint}") from None
    except DocumentError as error:
        raise BundleError(f"bundle {error}") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise BundleError(f"'{folder}' is not a foster bundle")
    version = data.get("schema_version")
    if version != SCHEMA:
        raise BundleError(
            f"bundle '{folder}' has schema version {str(version)[:20]}, this foster reads {SCHEMA}: "
            f"it was written by foster {str(data.get('foster'))[:40]}"
        )
    if data.pop("sha256", None) != _digest(data):
        raise BundleError(f"{MANIFEST} in bundle '{folder}' is damaged or was changed: its hash differs")
    try:
        return checked(data, Manifest, path)
    except DocumentError as error:
        raise BundleError(f"bundle {error}") from None


def checked_files(folder: Path, manifest: Manifest) -> Iterator[tuple[str, bytes]]:
    """The files of the bundle, one by one; BundleError if one was changed. `folder` is not a link."""
    for name, facts in manifest.files.items():
        yield name, read_checked(folder, name, facts.bytes, facts.sha256)


def _digest(data: Mapping[str, Any]) -> str:
    return sha256(json.dumps(data, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode())
