"""A server in a process of its own, or in this one, and photos to send."""

import asyncio
import functools
import io
import random
import re
import signal
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import httpx
from forked import started
from PIL import Image

from foster.serving.app import make_app
from foster.serving.options import Options
from foster.serving.served import Current, Served
from foster.serving.service import Service

# Every client would read all certificates there are, which takes longer than what it asks, and nobody encrypts here.
ssl.create_default_context = functools.cache(ssl.create_default_context)

SECONDS = 60.0
"""No server takes longer to start or to end, unless it hangs."""


def photo(seed: int = 0, kind: str = "PNG", size: tuple[int, int] = (12, 10)) -> bytes:
    """An image file of random pixels."""
    pixels = random.Random(seed).randbytes(3 * size[0] * size[1])
    file = io.BytesIO()
    Image.frombytes("RGB", size, pixels).save(file, kind)
    return file.getvalue()


def queue(folder: Path, num_photos: int) -> Path:
    """A folder of photos, in the order of their names."""
    folder.mkdir()
    for k in range(num_photos):
        (folder / f"{k + 1}-photo.png").write_bytes(photo(k))
    return folder


@dataclass
class Server:
    url: str
    process: BaseProcess
    said: Path

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def wait_for(self, text: str) -> None:
        until = time.monotonic() + SECONDS
        while text not in self.said.read_text():
            assert time.monotonic() < until, f"never said {text!r}: {self.said.read_text()}"
            assert self.process.is_alive(), self.said.read_text()
            time.sleep(0.01)


@contextmanager
def serving(path: Path, folder: Path, *options: object, port: int = 0) -> Iterator[Server]:
    """`foster serve` with these options; what it says goes to a file in `folder`. It must end well, unless killed."""
    said = folder / f"said-{time.monotonic_ns()}.txt"
    said.touch()
    process = started(["serve", str(path), "--port", str(port), "--device", "cpu", *map(str, options)], said)
    server = Server("", process, said)
    try:
        server.wait_for(" at http")
        found = re.search(r"at (http://\S+)", said.read_text())
        assert found
        server.url = found[1]
        yield server
    finally:
        was_alive = process.is_alive()
        process.terminate()
        process.join(SECONDS)
        process.kill()
    assert not was_alive or process.exitcode == 128 + signal.SIGTERM, said.read_text()
    assert "Traceback" not in said.read_text(), said.read_text()


def service_of(bundle: Path, **options: Any) -> Service:
    chosen = Options(path=bundle, device="cpu", **options)
    return Service(chosen, Current(bundle, lambda folder: Served.load(folder, "cpu", chosen.unknown_below)))


@asynccontextmanager
async def client_of(service: Service) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a service in this process; an error of the server is an answer with status 500, as for anybody."""
    transport = httpx.ASGITransport(app=make_app(service), raise_app_exceptions=False)
    async with service.running(), httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


Check = Callable[[httpx.AsyncClient], Awaitable[None]]


def run(service: Service, check: Check) -> None:
    """`check` with a client of the service."""

    async def checked() -> None:
        async with client_of(service) as client:
            await check(client)

    asyncio.run(checked())
