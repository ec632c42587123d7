"""Checkpoints: named groups of tensors and plain data, written so that a good one is always on the disk.

A checkpoint is a manifest and the safetensors files it names. The manifest is written last and carries the hash of
every file; the newest manifest whose files are all intact is the checkpoint. The one before it is kept as well.
"""

import hashlib
import json
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from foster.errors import FolderError
from foster.files import unwritable, write_json, writing

SCHEMA = 1
NUM_KEPT = 2
_MANIFEST = re.compile(r"manifest-(\d{8})\.json")

Tensors = Mapping[str, Tensor]


@dataclass(frozen=True)
class Checkpoint:
    """Plain data and named groups of tensors, as they were saved."""

    state: dict[str, Any]
    parts: dict[str, dict[str, Tensor]]


class CheckpointStore:
    """The checkpoints of one run, in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._written: dict[str, tuple[int, dict[str, str]]] = {}

    def save(self, state: Mapping[str, Any], kept: Mapping[str, Tensors], changing: Mapping[str, Tensors]) -> None:
        """Write a checkpoint. Groups in `kept` that were saved before, as the same objects, are not written again."""
        number = max((number for number, _ in self._manifests()), default=0) + 1
        files = {name: self._keep(name, tensors, number) for name, tensors in kept.items()}
        files |= {name: self._write(name, tensors, number) for name, tensors in changing.items()}
        manifest = {"schema": SCHEMA, "state": dict(state), "files": files}
        manifest["hash"] = _hash_of(manifest)
        write_json(self._manifest_path(number), manifest)
        self._remove_old()

    def load(self) -> Checkpoint | None:
        """The newest intact checkpoint; a damaged one is passed over with a warning. None where there is none."""
        found = sorted(self._manifests(), reverse=True)
        for _, path in found:
            try:
                return self._read(path)
            except (OSError, ValueError, KeyError, TypeError, safetensors.SafetensorError) as error:
                warnings.warn(f"checkpoint '{path}' is damaged ({error}); trying the one before it", stacklevel=2)
        if found:
            raise FolderError(f"no checkpoint in '{self.folder}' is intact; start the run anew in another folder")
        return None

    def _keep(self, name: str, tensors: Tensors, number: int) -> dict[str, str]:
        written = self._written.get(name)
        if written is None or written[0] != id(tensors) or not (self.folder / written[1]["file"]).exists():
            self._written[name] = written = (id(tensors), self._write(name, tensors, number))
        return written[1]

    def _write(self, name: str, tensors: Tensors, number: int) -> dict[str, str]:
        path = self.folder / f"{number:08d}-{name}.safetensors"
        plain = {key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()}
        try:
            data = safetensors.torch.save(plain)
            with writing(path) as temporary:
                temporary.write_bytes(data)
        except OSError as error:
            raise unwritable(path, error) from None
        return {"file": path.name, "sha256": hashlib.sha256(data).hexdigest()}

    def _read(self, path: Path) -> Checkpoint:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        if manifest.pop("hash") != _hash_of(manifest):
            raise ValueError("its manifest was altered")
        if manifest["schema"] != SCHEMA:
            raise ValueError(f"schema {manifest['schema']}, not {SCHEMA}")
        parts = {}
        for name, entry in manifest["files"].items():
            data = (self.folder / Path(entry["file"]).name).read_bytes()
            if hashlib.sha256(data).hexdigest() != entry["sha256"]:
                raise ValueError(f"{entry['file']} was altered or cut short")
            parts[name] = safetensors.torch.load(data)
        return Checkpoint(manifest["state"], parts)

    def _manifests(self) -> list[tuple[int, Path]]:
        if not self.folder.is_dir():
            return []
        matches = [(path, _MANIFEST.fullmatch(path.name)) for path in self.folder.iterdir()]
        return [(int(match.group(1)), path) for path, match in matches if match]

    def _manifest_path(self, number: int) -> Path:
        return self.folder / f"manifest-{number:08d}.json"

    def _remove_old(self) -> None:
        """Keep the newest checkpoints and the files they name."""
        newest = sorted(self._manifests(), reverse=True)
        for _, path in newest[NUM_KEPT:]:
            path.unlink(missing_ok=True)
        needed = set()
        for _, path in newest[:NUM_KEPT]:
            try:
                needed |= {entry["file"] for entry in json.loads(path.read_text(encoding="utf-8"))["files"].values()}
            except (OSError, ValueError, KeyError, TypeError):
                continue
        for path in self.folder.glob("*.safetensors"):
            if path.name not in needed:
                path.unlink(missing_ok=True)


def _hash_of(manifest: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
