"""The folder that you ship: weights in safetensors, facts in JSON, kept images as PNG or JPEG files. Never pickle.

```
bundle.json          schema version, settings, classes, preprocessing, temperature, history, hash of every file
network.safetensors  the weights
features.safetensors for pretrained backbones: sums over the features of all photos (float64: counts, class sums and
                     second moment), the features of some photos (float16), and the id, the class and the last answer
                     of each photo
labels.txt           the class names, line by line in the order of their ids
photos.zip           kept images: exemplars/0000/... by class id, PNG at the network's size or, of photos, JPEG; and
                     held-out/0000/..., which are never trained on
```

A bundle is written completely or not at all, is never changed, and is checked by its hashes when it is read.
"""

import io
import re
import secrets
import shutil
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from safetensors import SafetensorError

from foster.bundle.manifest import (
    FEATURES,
    FORMAT,
    LABELS,
    PHOTOS,
    SCHEMA,
    WEIGHTS,
    ExemplarFile,
    FileFacts,
    FileName,
    Manifest,
    Use,
    digest_of,
)
from foster.errors import DataError, FolderError, words_of
from foster.system.documents import DocumentError, checked, read_json, read_tensors
from foster.system.files import explained_write_errors, flush, sha256_of, unwritable, write_new
from foster.system.memory import main_memory
from foster.version import __version__

if TYPE_CHECKING:
    from torch import Tensor

MANIFEST = "bundle.json"
DAMAGED = "is damaged or was changed: its hash differs; copy the bundle again, or use another one"
MAX_MANIFEST_BYTES = 256 * 2**20

ImageFiles = tuple[tuple[str, bytes], ...]
"""Images of one class in selection order, by their ids: PNG or JPEG files."""


class BundleError(DataError):
    """A bundle is missing, damaged, changed by somebody else, or of another schema version."""


def check_free(folder: Path) -> None:
    """Refuse a path that exists, lies in a bundle or cannot be written to, before anything is trained."""
    if folder.exists() or folder.is_symlink():
        raise FolderError(f"'{folder}' already exists, and nothing is overwritten; choose a new name")
    check_outside(folder)
    parent = next(parent for parent in folder.absolute().parents if parent.exists())
    with explained_write_errors(folder):
        Path(tempfile.mkdtemp(dir=parent)).rmdir()


def check_outside(path: Path) -> None:
    """Refuse a path inside a bundle, which is never changed."""
    own_files = (MANIFEST, WEIGHTS)
    parents = path.resolve().parents
    around = next((parent for parent in parents if all((parent / name).is_file() for name in own_files)), None)
    if around is not None:
        raise FolderError(f"'{path}' lies inside the bundle '{around}', which is never changed; choose another place")


@contextmanager
def writing_folder(folder: Path) -> Iterator[Path]:
    """A temporary folder beside `folder`; on success it is flushed to the disk and takes the name `folder`."""
    check_free(folder)
    temporary = folder.parent / f".{folder.name}.{secrets.token_hex(4)}.part"
    try:
        temporary.mkdir(parents=True)
        yield temporary
        for path in (*temporary.rglob("*"), temporary):
            flush(path)
        temporary.rename(folder)  # fails if another process has written there meanwhile
        flush(folder.parent)
    except (OSError, SafetensorError) as error:
        raise unwritable(folder, error) from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def remove_unfinished(folder: Path) -> None:
    """Remove the temporary folders of killed writers of the bundle `folder`. The caller must hold its lock."""
    left = re.compile(rf"\.{re.escape(folder.name)}\.[a-z0-9_]{{8}}\.part")
    with suppress(OSError):
        for path in folder.parent.iterdir():
            if left.fullmatch(path.name):
                shutil.rmtree(path, ignore_errors=True)


def write_bundle(
    folder: Path,
    facts: Mapping[str, Any],
    weights: "Mapping[str, Tensor]",
    images: Mapping[Use, Sequence[ImageFiles]],
    features: "Mapping[str, Tensor]" = MappingProxyType({}),
) -> Manifest:
    """Write a bundle, whole or not at all. `facts` are the manifest's fields from `method` to `history`; `images` are
    those of each class id; `features` are on the CPU."""
    from safetensors.torch import save_file

    from foster.networks.modules import on_host

    exemplars: list[ExemplarFile] = []
    photos: list[tuple[str, bytes]] = []
    for use, by_class in images.items():
        for class_id, kept in enumerate(by_class):
            for position, (image_id, content) in enumerate(kept):
                ending = "png" if content.startswith(b"\x89PNG") else "jpg"
                name = f"{use}/{class_id:04d}/{position:04d}-{image_id}.{ending}"
                exemplars.append(ExemplarFile(file=name, class_id=class_id, use=use))
                photos.append((name, content))
    with writing_folder(folder) as temporary:
        save_file({name: on_host(tensor) for name, tensor in weights.items()}, temporary / WEIGHTS)
        if features:
            save_file(dict(features), temporary / FEATURES)
        write_new(temporary / LABELS, "".join(f"{name}\n" for name in facts["classes"]).encode())
        if photos:
            write_new(temporary / PHOTOS, zipped(photos))
        files: dict[FileName, FileFacts] = {}
        mode = (temporary / LABELS).stat().st_mode  # set by the umask; safetensors makes private files
        for path in sorted(temporary.iterdir()):
            path.chmod(mode)
            files[cast(FileName, path.name)] = FileFacts(sha256=sha256_of(path), bytes=path.stat().st_size)
        manifest = Manifest(foster=__version__, exemplars=tuple(exemplars), files=files, **facts)
        write_new(temporary / MANIFEST, manifest.text().encode())
    return manifest


def zipped(files: Iterable[tuple[str, bytes]]) -> bytes:
    """A ZIP file of names and contents, without compression; equal files give equal bytes."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name, content in files:
            entry = zipfile.ZipInfo(name)
            entry.external_attr = 0o644 << 16  # the permissions of an unpacked file
            archive.writestr(entry, content)
    return target.getvalue()


def real_folder(bundle: Path) -> Path:
    """The folder behind a link, resolved once: a link that moves while a bundle is read would mix two bundles."""
    try:
        folder = bundle.resolve(strict=True)
    except (OSError, RuntimeError):
        raise BundleError(f"there is no bundle '{bundle}'") from None
    if not folder.is_dir():
        raise BundleError(f"'{bundle}' is not a bundle folder")
    return bundle if folder == bundle.absolute() else folder


def read_manifest(folder: Path) -> Manifest:
    """Read and check `bundle.json`; the other files are not read."""
    path = real_folder(folder) / MANIFEST
    try:
        data = read_json(path, MAX_MANIFEST_BYTES)
    except DocumentError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise BundleError(f"bundle {error}") from None
        hint = f"; did you mean '{folder / 'current'}'?" if (folder / "current" / MANIFEST).exists() else ""
        raise BundleError(f"'{folder}' is not a bundle: it has no {MANIFEST}{hint}") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise BundleError(f"'{folder}' is not a foster bundle")
    version = data.get("schema_version")
    if version != SCHEMA:
        raise BundleError(
            f"bundle '{folder}' has schema version {str(version)[:20]}, this foster reads {SCHEMA}: "
            f"it was written by foster {str(data.get('foster'))[:40]}"
        )
    if data.pop("sha256", None) != digest_of(data):
        raise BundleError(f"{MANIFEST} in bundle '{folder}' {DAMAGED}")
    try:
        return checked(data, Manifest, path)
    except DocumentError as error:
        raise BundleError(f"bundle {error}") from None


def check_files(folder: Path) -> Manifest:
    """The manifest of a bundle. Raises BundleError if a file is missing, is a link, or has another size or hash than in
    the manifest. `folder` is not a link."""
    manifest = read_manifest(folder)
    num_bytes, room = sum(facts.bytes for facts in manifest.files.values()), main_memory()
    if num_bytes > room / 2:  # the files, and the weights and images that are read from them
        raise BundleError(f"bundle '{folder}' has {num_bytes:,} bytes, too many for a memory of {room:,}")
    for name, facts in manifest.files.items():
        path = folder / name
        try:
            if path.is_symlink():
                raise BundleError(f"'{name}' in bundle '{folder}' is a link")
            is_whole = path.stat().st_size == facts.bytes and sha256_of(path) == facts.sha256
        except OSError as error:
            raise BundleError(f"cannot read '{name}' in bundle '{folder}': {words_of(error)}") from None
        if not is_whole:
            raise BundleError(f"'{name}' in bundle '{folder}' {DAMAGED}")
    return manifest


@dataclass(frozen=True, eq=False)
class Bundle:
    """A bundle that was read and checked: its manifest, its weights, and its images as files in memory."""

    manifest: Manifest
    weights: "dict[str, Tensor]"
    features: "dict[str, Tensor]"
    """Sums and features of photos; empty if there are none."""
    image_files: dict[str, bytes]
    """Each kept image as an image file, by its name in the manifest."""

    def files(self, use: Use) -> list[ImageFiles]:
        """The images of one use, for each class id."""
        by_class: list[list[tuple[str, bytes]]] = [[] for _ in self.manifest.classes]
        for entry in self.manifest.exemplars:
            if entry.use == use:
                by_class[entry.class_id].append((entry.id, self.image_files[entry.file]))
        return [tuple(files) for files in by_class]


def read_bundle(bundle: Path) -> Bundle:
    """Read a bundle and check everything about it: version, hashes, names, sizes, and that its weights are numbers."""
    folder = real_folder(bundle)
    manifest = check_files(folder)
    weights = _tensors(WEIGHTS, folder)
    features = _tensors(FEATURES, folder) if FEATURES in manifest.files else {}
    return Bundle(manifest, weights, features, _image_files(manifest, folder) if manifest.exemplars else {})


def _image_files(manifest: Manifest, folder: Path) -> dict[str, bytes]:
    path = folder / PHOTOS
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            # Entries that are compressed or overlap could become much larger than the file itself.
            is_stored = [entry.compress_type == zipfile.ZIP_STORED for entry in entries]
            if not all(is_stored) or any(entry.compress_size != entry.file_size for entry in entries):
                raise ValueError("it is compressed")
            if sum(entry.file_size for entry in entries) > path.stat().st_size:
                raise ValueError("its files overlap")
            return {entry.file: archive.read(entry.file) for entry in manifest.exemplars}
    except (zipfile.BadZipFile, KeyError, ValueError, RuntimeError, OSError, EOFError, OverflowError) as error:
        raise BundleError(f"'{PHOTOS}' in bundle '{folder}' cannot be read: {words_of(error)}") from None


def _tensors(name: str, folder: Path) -> "dict[str, Tensor]":
    try:
        tensors = read_tensors(folder / name)
    except DocumentError as error:
        raise BundleError(f"'{name}' in bundle '{folder}' {error.problem}") from None
    floating = [tensor for tensor in tensors.values() if tensor.is_floating_point() and tensor.numel()]
    if not all(extreme.isfinite() for tensor in floating for extreme in tensor.aminmax()):
        raise BundleError(
            f"the weights in '{name}' of bundle '{folder}' are not all finite numbers; take an older bundle"
        )
    return tensors


def folder_bytes(folder: Path) -> int:
    """The size of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
