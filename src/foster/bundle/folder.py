"""The folder that you ship: weights in safetensors, facts in JSON, exemplars as PNG or JPEG files. Never pickle.

```
bundle.json          schema version, settings, classes, preprocessing, temperature, history, hash of every file
network.safetensors  the weights
labels.txt           the class names, line by line in the order of their ids
exemplars/0000/...   images that are trained on again, by class id: PNG at the network's size or, of photos, JPEG
held-out/0000/...    images that are never trained on, to measure accuracy
```
"""

import errno
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import safetensors.torch
from torch import Tensor

from foster.bundle.files import MANIFEST, WEIGHTS, BundleError, real_folder, sha256, writing_folder
from foster.bundle.manifest import (
    LABELS,
    ExemplarFile,
    FileFacts,
    Manifest,
    Preprocessing,
    Use,
    checked_files,
    read_manifest,
)
from foster.data.memory import ExemplarMemory
from foster.data.photos.decode import ID_LENGTH, Resizing
from foster.data.photos.store import check_room, stack_of_files
from foster.errors import DataError, FolderError, words_of
from foster.networks.layout import on_host
from foster.system.files import write_new, write_text
from foster.system.locking import locked
from foster.system.memory import main_memory
from foster.system.tensors import tensors_in
from foster.version import __version__

_OWN_NAME = re.compile(rf"(?P<use>[a-z-]+)/(?P<class_id>\d{{4,9}})/\d{{4,}}-[0-9a-f]{{{ID_LENGTH}}}\.(png|jpg)")


@dataclass(frozen=True, eq=False)
class Bundle:
    """A bundle that was read and found whole: its facts, its weights, and its exemplars as files in memory."""

    manifest: Manifest
    weights: dict[str, Tensor]
    image_files: dict[str, bytes]

    def memory(self, use: Use, title: str) -> ExemplarMemory:
        """The images of one use, by class and in selection order."""
        entries = [entry for entry in self.manifest.exemplars if entry.use == use]
        resizing = resizing_of(self.manifest.preprocessing)
        check_room(len(entries), resizing, num_copies=1)
        memory = ExemplarMemory()
        for class_id in range(len(self.manifest.classes)):
            own = [entry for entry in entries if entry.class_id == class_id]
            files = {entry.file: self.image_files[entry.file] for entry in own}
            try:
                memory.remember(class_id, stack_of_files(files, [entry.id for entry in own], resizing))
            except DataError as error:
                raise BundleError(f"bundle '{title}': {error}") from None
        return memory


def resizing_of(preprocessing: Preprocessing) -> Resizing:
    return Resizing(preprocessing.height, preprocessing.width, preprocessing.rule)


def write_bundle(
    folder: Path,
    facts: Mapping[str, Any],
    weights: Mapping[str, Tensor],
    memories: Mapping[Use, ExemplarMemory],
) -> Manifest:
    """Write a bundle, whole or not at all. `facts` are the manifest's fields from `method` to `history`."""
    files: dict[str, FileFacts] = {}
    exemplars: list[ExemplarFile] = []
    with writing_folder(folder) as temporary:

        def put(name: str, content: bytes) -> None:
            write_new(temporary / name, content)
            files[name] = FileFacts(sha256=sha256(content), bytes=len(content))

        put(WEIGHTS, safetensors.torch.save({name: on_host(tensor) for name, tensor in weights.items()}))
        put(LABELS, "".join(f"{name}\n" for name in facts["classes"]).encode())
        for use, memory in memories.items():
            for class_id in range(memory.num_classes):
                stack = memory.stack_of(class_id)
                for position, (own, content) in enumerate(zip(stack.ids(), stack.files(), strict=True)):
                    ending = "png" if content.startswith(b"\x89PNG") else "jpg"
                    name = f"{use}/{class_id:04d}/{position:04d}-{own}.{ending}"
                    put(name, content)
                    exemplars.append(ExemplarFile(file=name, class_id=class_id, use=use))
        manifest = Manifest(foster=__version__, exemplars=tuple(exemplars), files=files, **facts)
        write_new(temporary / MANIFEST, manifest.text().encode())
    return manifest


def read_bundle(folder: Path) -> Bundle:
    """Read a bundle and check everything about it: version, hashes, names, sizes, and that its weights are numbers."""
    folder = real_folder(folder)
    manifest = read_manifest(folder)
    num_bytes, room = sum(facts.bytes for facts in manifest.files.values()), main_memory()
    if room is not None and num_bytes > room / 2:  # the files, and the weights and images that are made of them
        raise BundleError(f"bundle '{folder}' has {num_bytes:,} bytes, too many for a memory of {room:,}")
    contents = dict(checked_files(folder, manifest))
    try:
        weights = tensors_in(contents[WEIGHTS])
    except ValueError as error:
        raise BundleError(f"'{WEIGHTS}' in bundle '{folder}' cannot be read: {error}") from None
    if not all(tensor.isfinite().all() for tensor in weights.values()):
        raise BundleError(f"the weights in bundle '{folder}' are not all finite numbers; take an older bundle")
    return Bundle(manifest, weights, {entry.file: contents[entry.file] for entry in manifest.exemplars})


def remove_exemplars(folder: Path, ids: Sequence[str]) -> list[ExemplarFile]:
    """Take stored images out of a bundle for good. The manifest changes first, so the bundle is valid at any time.

    `ids` are those of images or how they start, behind the class id and a slash where several classes keep the same.
    """
    folder = real_folder(folder)
    read_manifest(folder)  # what is no bundle gets no lock
    with locked(folder):
        # What an interrupted removal has left goes first, and is among the removed where it is asked for again.
        left = _remove_unlisted(folder, read_manifest(folder))
        meant = [entry for entry in left if any(entry.is_meant_by(wanted) for wanted in ids)]
        ids = [wanted for wanted in ids if not any(entry.is_meant_by(wanted) for entry in meant)]
        return [*meant, *(_removed(folder, ids) if ids else ())]


def _removed(folder: Path, ids: Sequence[str]) -> list[ExemplarFile]:
    manifest = read_manifest(folder)
    removed = [entry for entry in manifest.exemplars if any(entry.is_meant_by(wanted) for wanted in ids)]
    for wanted in ids:
        problem = _problem([entry for entry in removed if entry.is_meant_by(wanted)], manifest.classes)
        if problem:
            raise BundleError(f"cannot remove '{wanted}' from bundle '{folder}': {problem}")
    kept = tuple(entry for entry in manifest.exemplars if entry not in removed)
    left = {entry.class_id for entry in kept if entry.use == "exemplars"}
    for entry in removed:
        if entry.use == "exemplars" and entry.class_id not in left:
            raise BundleError(
                f"'{entry.id}' is the last exemplar of class '{manifest.classes[entry.class_id]}', which the next "
                "learn would forget; first learn other images of that class"
            )
    names = {entry.file for entry in removed}
    files = {name: facts for name, facts in manifest.files.items() if name not in names}
    note = {"removed_exemplars": sorted(entry.id for entry in removed)}
    changed = manifest.model_copy(update={"exemplars": kept, "files": files, "history": (*manifest.history, note)})
    write_text(folder / MANIFEST, changed.text())
    _remove_unlisted(folder, changed, names)
    return removed


def _problem(meant: Sequence[ExemplarFile], classes: Sequence[str]) -> str | None:
    """Why it is not clear which picture of which class is meant, where it is not."""
    if not meant:
        return "there is no such exemplar"
    num_ids = len({entry.id for entry in meant})
    if num_ids > 1:
        return f"{num_ids} exemplars have ids that start so"
    choices = {entry.full_id: classes[entry.class_id] for entry in meant}
    if len(choices) > 1:
        listed = ", ".join(f"{full_id} ('{name}')" for full_id, name in choices.items())
        return f"{len(choices)} classes keep this picture; choose from {listed}"
    return None


def _remove_unlisted(folder: Path, manifest: Manifest, names: Iterable[str] = ()) -> list[ExemplarFile]:
    """Delete the image files `names` and all others that the manifest does not list; returns those that were there."""
    deleted = []
    for name in sorted({*names, *_image_files(folder)} - manifest.files.keys()):
        path = folder / name
        try:
            if not path.parent.resolve().is_relative_to(folder.resolve()):
                raise OSError(errno.ELOOP, "a link leads out of the bundle")
            path.unlink()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise FolderError(
                f"cannot delete '{path}': {words_of(error)}; the bundle does not list that image any more, and "
                "removing it once again deletes the file"
            ) from None
        own = _OWN_NAME.fullmatch(name)
        if own and int(own["class_id"]) < len(manifest.classes):
            deleted.append(ExemplarFile.model_validate({"file": name, **own.groupdict()}))
    return deleted


def _image_files(folder: Path) -> Iterator[str]:
    """The names of the images in a bundle's folder that are named as we name them; no link is followed."""
    for use in get_args(Use):
        if not (folder / use).is_symlink():
            for path in sorted((folder / use).glob("*/*")):
                name = path.relative_to(folder).as_posix()
                if _OWN_NAME.fullmatch(name) and not path.parent.is_symlink():
                    yield name
