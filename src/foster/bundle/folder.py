"""The folder that you ship: weights in safetensors, facts in JSON, exemplars as PNG or JPEG files. Never pickle.

```
bundle.json          schema version, settings, classes, preprocessing, temperature, history, hash of every file
network.safetensors  the weights
features.safetensors for pretrained backbones: sums over the features of all photos (float64: counts, class sums and
                     second moment), the features of some photos (float16), and the id, the class and the last answer
                     of each photo
labels.txt           the class names, line by line in the order of their ids
exemplars/0000/...   images that are trained on again, by class id: PNG at the network's size or, of photos, JPEG
held-out/0000/...    images that are never trained on, to measure accuracy
```
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import safetensors.torch
from torch import Tensor

from foster.bundle.files import MANIFEST, WEIGHTS, BundleError, real_folder, sha256, writing_folder
from foster.bundle.manifest import (
    FEATURES,
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
from foster.data.photos.decode import Resizing
from foster.data.photos.stack import check_room, stack_of_files
from foster.errors import DataError
from foster.networks.modules import on_host
from foster.system.documents import tensors_in
from foster.system.files import write_new
from foster.system.memory import main_memory
from foster.version import __version__


@dataclass(frozen=True, eq=False)
class Bundle:
    """A bundle that was read and checked: its manifest, its weights, and its images as files in memory."""

    manifest: Manifest
    weights: dict[str, Tensor]
    image_files: dict[str, bytes]
    features: dict[str, Tensor]
    """Sums and features of photos; empty if there are none."""

    def memory(self, use: Use, title: str, is_tried: bool = True) -> ExemplarMemory:
        """The images of one use, by class and in selection order. `is_tried` decodes photos to check them."""
        entries = [entry for entry in self.manifest.exemplars if entry.use == use]
        resizing = resizing_of(self.manifest.preprocessing)
        check_room(len(entries), resizing, num_copies=1)
        memory = ExemplarMemory()
        for class_id in range(len(self.manifest.classes)):
            own = [entry for entry in entries if entry.class_id == class_id]
            files = {entry.file: self.image_files[entry.file] for entry in own}
            try:
                memory.remember(class_id, stack_of_files(files, [entry.id for entry in own], resizing, is_tried))
            except DataError as error:
                raise BundleError(f"bundle '{title}': {error}") from None
        return memory


def resizing_of(preprocessing: Preprocessing) -> Resizing:
    return Resizing(*preprocessing.size)


def write_bundle(
    folder: Path,
    facts: Mapping[str, Any],
    weights: Mapping[str, Tensor],
    memories: Mapping[Use, ExemplarMemory],
    features: Mapping[str, Tensor] = MappingProxyType({}),
) -> Manifest:
    """Write a bundle, whole or not at all. `facts` are the manifest's fields from `method` to `history`."""
    files: dict[str, FileFacts] = {}
    exemplars: list[ExemplarFile] = []
    with writing_folder(folder) as temporary:

        def put(name: str, content: bytes) -> None:
            write_new(temporary / name, content)
            files[name] = FileFacts(sha256=sha256(content), bytes=len(content))

        put(WEIGHTS, safetensors.torch.save({name: on_host(tensor) for name, tensor in weights.items()}))
        if features:
            put(FEATURES, safetensors.torch.save({name: on_host(tensor) for name, tensor in features.items()}))
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
    if num_bytes > room / 2:  # the files, and the weights and images that are made of them
        raise BundleError(f"bundle '{folder}' has {num_bytes:,} bytes, too many for a memory of {room:,}")
    contents = dict(checked_files(folder, manifest))
    weights = _tensors(contents[WEIGHTS], WEIGHTS, folder)
    features = _tensors(contents[FEATURES], FEATURES, folder) if FEATURES in contents else {}
    return Bundle(manifest, weights, {entry.file: contents[entry.file] for entry in manifest.exemplars}, features)


def _tensors(content: bytes, name: str, folder: Path) -> dict[str, Tensor]:
    try:
        tensors = tensors_in(content)
    except ValueError as error:
        raise BundleError(f"'{name}' in bundle '{folder}' cannot be read: {error}") from None
    if not all(tensor.isfinite().all() for tensor in tensors.values()):
        raise BundleError(
            f"the weights in '{name}' of bundle '{folder}' are not all finite numbers; take an older bundle"
        )
    return tensors
