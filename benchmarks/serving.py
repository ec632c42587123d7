"""Requests a second and latencies of `foster serve`, with and without batching, measured alternately in one run.

    python benchmarks/serving.py                                  # ResNet-32, random photos, 1, 8 and 64 clients
    python benchmarks/serving.py --bundle bundles/current --photo-side 1024
    python benchmarks/serving.py --device cuda --backbone resnet18 --image-size 224 --files 32 --clients 1 8 64

The server is the real command in its own process. Clients are threads of another process, each with one connection, and
send JPEG photos one request after another. Rounds with and without batching alternate, so that both have the same load
of the machine; the ratio is the median over neighbouring rounds.
"""

import argparse
import http.client
import io
import json
import multiprocessing
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image

BOUNDARY = "photos"
MODES = {"batched": ["--batch-size", "64"], "alone": ["--batch-size", "1"]}


class Load(NamedTuple):
    """The result of one round: requests and images a second, and latencies in milliseconds."""

    requests_a_second: float
    images_a_second: float
    p50: float
    p95: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundle", type=Path, help="serve this one; by default one with random weights is made")
    parser.add_argument("--backbone", default="resnet32")
    parser.add_argument("--image-size", type=int, default=32)
    parser.add_argument("--photo-side", type=int, default=256, help="pixels a side of the photos that are sent")
    parser.add_argument("--files", type=int, default=1, help="photos a request")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--seconds", type=float, default=4.0, help="of each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, help="write the numbers as JSON")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bundle = given.bundle or make_bundle(Path(folder) / "bundle", given.backbone, given.image_size)
        body = request_body(given.photo_side, given.files)
        measured = measure(bundle, body, given.files, given.clients, given.seconds, given.rounds, given.device)
    numbers = {
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if given.device.startswith("cuda") else given.device,
        "cores": os.cpu_count(),
        "backbone": str(given.bundle or given.backbone),
        "image_size": given.image_size,
        "photo_side": given.photo_side,
        "files_a_request": given.files,
        "clients": {str(count): summary(rounds) for count, rounds in measured.items()},
    }
    print(
        f"{numbers['device']}, {numbers['cores']} cores, torch {torch.__version__}, {numbers['backbone']} at "
        f"{given.image_size} x {given.image_size}, JPEG photos of {given.photo_side} x {given.photo_side}, "
        f"{given.files} a request, medians of {given.rounds} rounds of {given.seconds:g} s"
    )
    print(f"{'clients':>7} {'mode':>8} {'requests/s':>11} {'images/s':>9} {'p50 ms':>8} {'p95 ms':>8}")
    for count, rounds in measured.items():
        found = summary(rounds)
        for mode in MODES:
            load = Load(**found[mode])  # type: ignore[arg-type]
            print(
                f"{count:>7} {mode:>8} {load.requests_a_second:>11.1f} {load.images_a_second:>9.1f} "
                f"{load.p50:>8.1f} {load.p95:>8.1f}"
            )
        print(f"{count:>7} {'ratio':>8} {found['batched_over_alone']:>11.2f}")
    if given.out:
        given.out.write_text(json.dumps(numbers, indent=1) + "\n")


def make_bundle(folder: Path, backbone: str, image_size: int) -> Path:
    """A bundle of ten classes with a barely trained network, which takes the same time to serve."""
    import foster

    chance = np.random.default_rng(0)
    images = [chance.integers(0, 256, (image_size, image_size, 3), dtype=np.uint8) for _ in range(20)]
    learner = foster.Learner(
        backbone=backbone, image_size=image_size, epochs_scale=0.001, memory_total=10, validation_share=0, device="cpu"
    )
    learner.learn(images, [f"class {k % 10}" for k in range(20)])
    return learner.save(folder)


def request_body(side: int, num_files: int) -> bytes:
    """A form with generated photos of about the file size of real ones."""
    chance = np.random.default_rng(0)
    parts = []
    for index in range(num_files):
        coarse = Image.fromarray(chance.integers(0, 256, (16, 16, 3), dtype=np.uint8))
        file = io.BytesIO()
        coarse.resize((side, side), Image.Resampling.BICUBIC).save(file, "JPEG", quality=90)
        head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="{index}.jpg"\r\n\r\n'
        parts.append(head.encode() + file.getvalue() + b"\r\n")
    return b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()


@contextmanager
def server(bundle: Path, options: Sequence[str]) -> Iterator[int]:
    """The server command on a free port."""
    command = [sys.executable, "-m", "foster", "serve", str(bundle), "--port", "0", "--max-waiting", "8192", *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        said = ""
        while not (found := re.search(r"at http://[^ ]+:(\d+)$", said)):
            said = process.stderr.readline()
            assert process.poll() is None, f"the server ended: {said}"
        threading.Thread(target=process.stderr.read, daemon=True).start()
        yield int(found[1])
    finally:
        process.terminate()
        process.wait()


def measure(
    bundle: Path, body: bytes, num_files: int, clients: Sequence[int], seconds: float, rounds: int, device: str
) -> dict[int, dict[str, list[Load]]]:
    """Both servers; one is idle while the other is measured."""
    found: dict[int, dict[str, list[Load]]] = {count: {mode: [] for mode in MODES} for count in clients}
    with (
        server(bundle, [*MODES["batched"], "--device", device]) as batched,
        server(bundle, [*MODES["alone"], "--device", device]) as alone,
        multiprocessing.get_context("spawn").Pool(1) as beside,
    ):
        ports = {"batched": batched, "alone": alone}
        for port in ports.values():
            beside.apply(ask, (port, body, num_files, 4, 1.0))
        for count in clients:
            for _ in range(rounds):
                for mode, port in ports.items():
                    found[count][mode].append(beside.apply(ask, (port, body, num_files, count, seconds)))
    return found


def ask(port: int, body: bytes, num_files: int, num_clients: int, seconds: float) -> Load:
    """Send requests from this many clients for this many seconds."""
    latencies: list[float] = []
    headers = {"content-type": f"multipart/form-data; boundary={BOUNDARY}"}
    end = time.perf_counter() + seconds

    def client() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        while (started := time.perf_counter()) < end:
            connection.request("POST", "/predict", body, headers)
            answer = connection.getresponse()
            text = answer.read()
            assert answer.status == 200, text
            latencies.append(time.perf_counter() - started)
        connection.close()

    threads = [threading.Thread(target=client) for _ in range(num_clients)]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rate = len(latencies) / (time.perf_counter() - started)
    cuts = [1e3 * float(value) for value in np.quantile(latencies, [0.5, 0.95])]
    return Load(rate, rate * num_files, *cuts)


def summary(rounds: dict[str, list[Load]]) -> dict[str, object]:
    """The medians of all numbers, and of the ratio of neighbouring rounds."""
    medians: dict[str, object] = {
        mode: {name: statistics.median(getattr(load, name) for load in loads) for name in Load._fields}
        for mode, loads in rounds.items()
    }
    pairs = zip(rounds["batched"], rounds["alone"], strict=True)
    ratio = statistics.median(one.requests_a_second / other.requests_a_second for one, other in pairs)
    return {**medians, "batched_over_alone": ratio}


if __name__ == "__main__":
    main()
