"""Checkpoints: named groups of tensors and plain data, written such that an intact one is always on the disk.

A checkpoint is a manifest and the safetensors files that it names. The manifest is written last, with the hash of every
file and of itself. The newest manifest with intact files is the one that is loaded.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import safetensors.torch
from pydantic import Field, JsonValue, ValidationError
from torch import Tensor

from foster.errors import FolderError, words_of
from foster.networks.modules import on_host
from foster.system.documents import (
    Count,
    Document,
    DocumentError,
    Sha256,
    checked,
    first_problem,
    max_tensor_bytes,
    read_json,
    tensors_in,
)
from foster.system.files import flush, read_limited, remove_temporaries, sha256, unwritable, write_bytes, write_json
from foster.training.memory_errors import shortage_in

SCHEMA = 1
MAX_MANIFEST_BYTES = 256 * 2**20
_MANIFEST = re.compile(r"manifest-(\d{8,18})\.json")
_PART_NAME = r"^[a-z0-9][a-z0-9_-]{0,63}$"
_FILE_NAME = r"^[0-9]{8,18}-[a-z0-9][a-z0-9_-]{0,63}\.safetensors$"
_DAMAGE = (OSError, ValueError, DocumentError)
"""The exceptions that reading a damaged file may raise."""

Tensors = Mapping[str, Tensor]


@dataclass(frozen=True)
class Checkpoint:
    """Plain data and named groups of tensors."""

    state: dict[str, Any]
    parts: dict[str, dict[str, Tensor]]


class _File(Document):
    name: Annotated[str, Field(pattern=_FILE_NAME)]
    """The pattern excludes paths that lead out of the folder."""
    sha256: Sha256
    bytes: Count


class _Manifest(Document):
    schema_version: Literal[1] = Field(alias="schema")
    state: dict[str, JsonValue]
    files: dict[Annotated[str, Field(pattern=_PART_NAME)], _File]


class CheckpointStore:
    """The two newest checkpoints of one run, in a folder of their own. They share the files of unchanged parts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._usable: dict[int, frozenset[str]] = {}
        self._kept: dict[str, tuple[Tensors, _File]] = {}

    def save(self, state: Mapping[str, Any], kept: Mapping[str, Tensors], changing: Mapping[str, Tensors]) -> None:
        """Write a checkpoint. A group in `kept` is not written again if the same object was saved or loaded before; it
        must not have been changed in place."""
        number = max((number for number, _ in self._manifests()), default=0) + 1
        try:
            files = {name: file for name, (tensors, file) in self._kept.items() if kept.get(name) is tensors}
            written = {**kept, **changing}.items()
            files |= {name: self._write(name, tensors, number) for name, tensors in written if name not in files}
            # The files' names must reach the disk before the manifest that names them.
            if files:
                flush(self.folder)
            listed = {name: file.model_dump() for name, file in files.items()}
            manifest = {"schema": SCHEMA, "state": state, "files": listed}
            path = self.folder / f"manifest-{number:08d}.json"
            write_json(path, manifest | {"hash": _hash_of(manifest)})
        except BaseException as error:
            self._remove_unused()
            if isinstance(error, OSError):
                raise unwritable(self.folder, error) from None
            raise
        self._kept = {name: (tensors, files[name]) for name, tensors in kept.items()}
        self._usable[number] = frozenset(file.name for file in files.values())
        self._remove_unused()

    def load(self, warn: Callable[[str], None], *, is_read_only: bool = False) -> Checkpoint | None:
        """The newest intact checkpoint, or None if the folder has none; `warn` is called for each damaged one.

        With `is_read_only`, temporary files are not removed: another process may be writing them.
        """
        self._usable, self._kept = {}, {}
        newest: Checkpoint | None = None
        manifests = sorted(self._manifests(), reverse=True)
        if not is_read_only:
            remove_temporaries(self.folder)
        for number, path in manifests:
            try:
                manifest = _read_manifest(path)
                if newest is None:
                    newest = Checkpoint(manifest.state, {k: self._read(file) for k, file in manifest.files.items()})
                    self._kept = {name: (newest.parts[name], file) for name, file in manifest.files.items()}
                self._usable[number] = frozenset(file.name for file in manifest.files.values())
            except _DAMAGE as error:
                if newest is None:
                    warn(f"checkpoint '{path}' cannot be used ({_reason(error)}); trying the one before it")
        if manifests and newest is None:
            raise FolderError(f"no checkpoint in '{self.folder}' is intact; start again in another folder")
        return newest

    def _write(self, name: str, tensors: Tensors, number: int) -> _File:
        data = safetensors.torch.save({name: on_host(tensor) for name, tensor in tensors.items()})
        digest = sha256(data)
        file = _File(name=f"{number:08d}-{name}.safetensors", sha256=digest, bytes=len(data))
        write_bytes(self.folder / file.name, data, is_folder_flushed=False)
        return file

    def _read(self, file: _File) -> dict[str, Tensor]:
        content = read_limited(self.folder / file.name, min(file.bytes, max_tensor_bytes()))
        if sha256(content) != file.sha256:
            raise ValueError(f"{file.name} was altered or cut short")
        return tensors_in(content)

    def _manifests(self) -> list[tuple[int, Path]]:
        if self.folder.is_symlink():
            raise FolderError(f"'{self.folder}' is a link; checkpoints are only read and written in the folder itself")
        try:
            matches = [(path, _MANIFEST.fullmatch(path.name)) for path in self.folder.iterdir()]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise FolderError(f"cannot read '{self.folder}': {words_of(error)}") from None
        return [(int(match.group(1)), path) for path, match in matches if match]

    def _remove_unused(self) -> None:
        """Remove all but the two newest usable checkpoints; errors are ignored."""
        self._usable = {number: self._usable[number] for number in sorted(self._usable)[-2:]}
        needed = frozenset[str]().union(*self._usable.values())
        with suppress(OSError, FolderError):
            # Manifests first: after a crash in between, files may lack a manifest, but no manifest lacks its files.
            for number, path in self._manifests():
                if number not in self._usable:
                    path.unlink(missing_ok=True)
            for path in self.folder.iterdir():
                if re.fullmatch(_FILE_NAME, path.name) and path.name not in needed:
                    path.unlink(missing_ok=True)


class NoCheckpoints(CheckpointStore):
    """A store that saves nothing."""

    def save(self, state: Mapping[str, Any], kept: Mapping[str, Tensors], changing: Mapping[str, Tensors]) -> None:
        """Save nothing."""


@contextmanager
def explained_misfit() -> Iterator[None]:
    """Turn an error while an intact checkpoint is restored into a FolderError."""
    try:
        yield
    except (LookupError, RuntimeError, ValueError, TypeError, AttributeError, OverflowError) as error:
        if shortage_in(error):
            raise
        raise FolderError(
            f"the checkpoint does not fit this run ({_reason(error)}); "
            "was it written by another version? start again in another folder"
        ) from None


def _read_manifest(path: Path) -> _Manifest:
    manifest = checked(read_json(path, MAX_MANIFEST_BYTES), dict[str, Any], path)
    if manifest.pop("hash", None) != _hash_of(manifest):
        raise ValueError("its manifest was altered")
    return checked(manifest, _Manifest, path)


def _hash_of(manifest: Mapping[str, Any]) -> str:
    return sha256(json.dumps(manifest, sort_keys=True).encode())


def _reason(error: BaseException) -> str:
    """The problem, in one short line."""
    if isinstance(error, ValidationError):
        error = ValueError(first_problem(error))
    if isinstance(error, DocumentError):
        error = ValueError(error.problem)
    return words_of(error)
