"""What `bundle.json` holds, and how it is read: with suspicion, for a bundle may come from anywhere."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationError, model_validator

from foster.bundle.files import MANIFEST, WEIGHTS, BundleError, check_name, sha256
from foster.bundle.history import checked_entry
from foster.settings.fit import Frozen
from foster.settings.methods import METHOD_SETTINGS
from foster.system.files import read_plain

SCHEMA = 1
FORMAT = "foster bundle"
LABELS = "labels.txt"
MAX_MANIFEST_BYTES = 256 * 2**20

Use = Literal["exemplars", "held-out"]
Side = Annotated[int, Field(ge=4, le=4096)]
Mean = Annotated[float, Field(ge=-1e6, le=1e6)]
Spread = Annotated[float, Field(ge=1e-6, le=1e6)]


class Preprocessing(Frozen):
    """From a picture to what the network sees: resized by `rule`, then (pixel / 255 - mean) / std."""

    height: Side
    width: Side
    rule: Literal["stretch", "crop"]
    mean: tuple[Mean, Mean, Mean]
    std: tuple[Spread, Spread, Spread]

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        return self.height, self.width


class FileFacts(Frozen):
    sha256: str
    bytes: int = Field(ge=0)


class ExemplarFile(Frozen):
    """One stored image: its file, its class id, and what it is for. Their order is the selection order."""

    file: str
    class_id: int = Field(ge=0)
    use: Use

    @property
    def id(self) -> str:
        """A name that an image keeps for life: the start of the hash of its pixels."""
        return Path(self.file).stem.rpartition("-")[2]

    @property
    def full_id(self) -> str:
        """Class id and id, as in the file's path: one picture may be kept in several classes."""
        return f"{self.class_id:04d}/{self.id}"

    def is_meant_by(self, text: str) -> bool:
        """Whether `text` names this image: an id or its start, alone or behind the class id."""
        class_id, _, start = text.rpartition("/")
        return (
            bool(start) and self.id.startswith(start) and class_id in ("", str(self.class_id), f"{self.class_id:04d}")
        )


class Manifest(Frozen):
    """What `bundle.json` holds."""

    format: Literal["foster bundle"] = "foster bundle"
    schema_version: int
    foster: str
    method: str
    backbone: str
    settings: dict[str, Any]
    classes: tuple[str, ...] = Field(min_length=1)
    task_sizes: tuple[int, ...] = Field(min_length=1)
    preprocessing: Preprocessing
    temperature: float = Field(ge=1e-6, le=1e6)
    num_calibration_images: int = Field(ge=0)
    """How many held-out images the temperature was fitted on; 0 where it was not fitted."""
    history: tuple[Annotated[dict[str, Any], AfterValidator(checked_entry)], ...]
    exemplars: tuple[ExemplarFile, ...]
    files: dict[str, FileFacts]

    @model_validator(mode="after")
    def _fits_together(self) -> "Manifest":
        if self.method not in METHOD_SETTINGS:
            raise ValueError(f"unknown method '{self.method}'")
        if sum(self.task_sizes) != len(self.classes) or min(self.task_sizes) < 0 or self.task_sizes[0] < 1:
            raise ValueError(f"tasks of {self.task_sizes} classes for {len(self.classes)} class names")
        if len(set(self.classes)) != len(self.classes):
            raise ValueError("two classes have the same name")
        if not all(name.strip() and "\n" not in name for name in self.classes):
            raise ValueError("a class has no name, or one of several lines")
        if any(entry.class_id >= len(self.classes) for entry in self.exemplars):
            raise ValueError("an exemplar belongs to no class")
        unlisted = {WEIGHTS, *(entry.file for entry in self.exemplars)} - self.files.keys()
        if unlisted:
            raise ValueError(f"no hash of '{min(unlisted)}'")
        return self

    def text(self) -> str:
        """`bundle.json`: the facts and, as `sha256`, their own hash."""
        data = self.model_dump(mode="json")
        return json.dumps({**data, "sha256": _digest(data)}, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def read_manifest(folder: Path) -> Manifest:
    """The facts of a bundle; its other files are not looked at."""
    path = folder / MANIFEST
    if not folder.is_dir():
        raise BundleError(
            f"there is no bundle '{folder}'" if not folder.exists() else f"'{folder}' is not a bundle folder"
        )
    try:
        data = json.loads(read_plain(path, max_bytes=MAX_MANIFEST_BYTES).decode(), parse_constant=_no_constant)
        told = data.pop("sha256", None) if isinstance(data, dict) else None
        digest = _digest(data)
    except FileNotFoundError:
        raise BundleError(f"'{folder}' is not a bundle: it has no {MANIFEST}") from None
    except OSError as error:
        raise BundleError(f"cannot read {MANIFEST} in bundle '{folder}': {error.strerror}") from None
    except (ValueError, RecursionError):
        raise BundleError(f"{MANIFEST} in bundle '{folder}' is truncated or damaged: it is not valid JSON") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise BundleError(f"'{folder}' is not a foster bundle")
    version = data.get("schema_version")
    if isinstance(version, int) and version > SCHEMA:
        raise BundleError(
            f"bundle '{folder}' has schema version {version}, this foster reads up to {SCHEMA}: "
            f"it was written by foster {data.get('foster')}; upgrade foster to read it"
        )
    if told != digest:
        raise BundleError(f"{MANIFEST} in bundle '{folder}' is damaged or was changed: its hash differs")
    try:
        manifest = Manifest.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or MANIFEST
        raise BundleError(f"{MANIFEST} in bundle '{folder}' is not valid: {where}: {first['msg']}") from None
    for name in manifest.files:
        check_name(name, folder)
    return manifest


def _digest(data: Mapping[str, Any]) -> str:
    return sha256(json.dumps(data, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode())


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")
