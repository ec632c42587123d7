"""CIFAR-100 of seven images and three classes, as its published files, and a server on this machine that has it."""

import gzip
import hashlib
import io
import struct
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import torch

from foster.data.cifar import read_cifar
from foster.data.images import ImageSet
from foster.data.sources import Request
from foster.settings.datasets import CATALOGUE, Published

NAMES = ["apple", "bear", "cloud"]
ARCHIVE = "cifar-100-python.tar.gz"


def pixels(num_images: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (num_images, 3072), dtype=np.uint8)


def python2_pickle(content: dict[str, Any]) -> bytes:
    """The opcodes that Python 2 wrote in 2009: byte strings for text and numpy.core for the array."""

    def string(text: bytes) -> bytes:
        return b"T" + struct.pack("<i", len(text)) + text

    def written(value: Any) -> bytes:
        if isinstance(value, str):
            return string(value.encode())
        if isinstance(value, int):
            return b"J" + struct.pack("<i", value)
        if isinstance(value, list):
            return b"](" + b"".join(written(item) for item in value) + b"e"
        shape = b"".join(written(length) for length in value.shape) + b"\x86"
        empty = (
            b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n" + written(0) + b"\x85" + string(b"b") + b"\x87R"
        )
        dtype = b"cnumpy\ndtype\n" + string(b"u1") + written(0) + written(1) + b"\x87R("
        dtype += written(3) + string(b"|") + b"NNN" + written(-1) + written(-1) + written(0) + b"tb"
        return empty + b"(" + written(1) + shape + dtype + b"\x89" + string(value.tobytes()) + b"tb"

    items = b"".join(string(key.encode()) + written(value) for key, value in content.items())
    return b"\x80\x02}(" + items + b"u."


def small_files() -> dict[str, bytes]:
    return {
        "train": python2_pickle({"data": pixels(5), "fine_labels": [0, 1, 2, 1, 0], "batch_label": "training"}),
        "test": python2_pickle({"data": pixels(2, seed=1), "fine_labels": [2, 0]}),
        "meta": python2_pickle({"fine_label_names": NAMES, "coarse_label_names": ["things"]}),
    }


def md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def tar_of(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return gzip.compress(buffer.getvalue(), mtime=0)  # the same bytes at any time


def archive_of(files: dict[str, bytes]) -> bytes:
    return tar_of({f"cifar-100-python/{name}": content for name, content in files.items()})


def published(archive: bytes, address: str = f"http://127.0.0.1:9/{ARCHIVE}") -> Published:
    """The small files as if they were the published ones. Nothing listens on port 9."""
    sums = {name: md5(content) for name, content in small_files().items()}
    return Published(address, md5(archive), "cifar-100-python", sums)


def write(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def read(source: Published, data_dir: Path) -> tuple[ImageSet, ImageSet]:
    """The images of `source`, in the layout of CIFAR-10 or of CIFAR-100."""
    facts = replace(CATALOGUE["cifar100"], name="other", published=source)
    return read_cifar(Request(data_dir=data_dir, facts=facts))


def assert_small_files_are_read(source: Published, data_dir: Path) -> None:
    train, test = read(source, data_dir)
    assert train.class_names == test.class_names == ("apple", "bear", "cloud")
    assert train.labels.tolist() == [0, 1, 2, 1, 0]
    assert torch.equal(train.images, torch.from_numpy(pixels(5)).reshape(5, 3, 32, 32))
    assert torch.equal(test.images, torch.from_numpy(pixels(2, seed=1)).reshape(2, 3, 32, 32))


@dataclass
class Web:
    """A server of the small archive, and how it behaves."""

    content: bytes = field(default_factory=lambda: archive_of(small_files()))
    address: str = ""
    holds_after: int | None = None
    """After so many bytes, requests wait until they are let go."""
    is_held: threading.Event = field(default_factory=threading.Event)
    let_go: threading.Event = field(default_factory=threading.Event)
    num_requests: int = 0

    @property
    def published(self) -> Published:
        """The small archive, whatever the server has in its place."""
        return published(archive_of(small_files()), f"{self.address}/{ARCHIVE}")


@contextmanager
def serving() -> Iterator[Web]:
    web = Web()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            web.num_requests += 1
            if self.path != f"/{ARCHIVE}":
                self.send_error(404)
                return
            content = web.content
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            num_sent = len(content) if web.holds_after is None else web.holds_after
            self.wfile.write(content[:num_sent])
            if web.holds_after is not None:
                self.wfile.flush()
                web.is_held.set()
                web.let_go.wait(60)
                self.wfile.write(content[num_sent:])

        def log_message(self, *arguments: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, *arguments: object) -> None:
            """Those who stop close their connection, which is no news."""

    with Server(("127.0.0.1", 0), Handler) as listener:
        web.address = f"http://127.0.0.1:{listener.server_port}"
        thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield web
        finally:
            web.let_go.set()
            listener.shutdown()
            thread.join()
