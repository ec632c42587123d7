"""How long the 3x3 convolutions of ResNet-32 take: the library's kernels, with and without its search, and ours; and
how long each kernel of our fused residual blocks takes. A `+` marks the variant with a shortcut: with an addition, or,
for `pass grad`, the one of a block's second BatchNorm, which has a ReLU behind and gives the shortcut its gradient.
`weights` are the gradients of the weights of ten layers in one launch, in time for each. Then the small linear layers
of heads.

    python benchmarks/kernels.py                   all shapes of ResNet-32, batch 128
    python benchmarks/kernels.py --wide            the shapes of ResNet-18 instead, batch 64, `weights` of four layers
    python benchmarks/kernels.py --tune            also tries other tiles, for at most --tune-seconds
    python benchmarks/kernels.py --out FILE        writes all numbers as JSON

A time is the median over replays of a CUDA graph of many calls on rotating inputs, in microseconds a call. Gradients of
the weight include the sum of the partial sums. The error is |ours - float32| / |float32|; the floor is the time to move
each input and output once at 4.3 TB/s.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from block_operations import Call, Operation, block_operations, weights_in_batches
from head_operations import HEADS, head_operations
from torch import Tensor
from torch.nn import functional

from foster.kernels import is_available, launch, tiles
from foster.kernels.tiles import ConvolutionTile, GradientTile
from foster.kernels.weight_gradients import weight_gradient

NUM_CALLS = 20
NUM_REPLAYS = 30
BYTES_PER_MICROSECOND = 4.3e6
MOST_ERROR = 1e-2


class Shape(NamedTuple):
    in_channels: int
    out_channels: int
    size: int
    stride: int = 1

    def __str__(self) -> str:
        stride = f" /{self.stride}" if self.stride > 1 else ""
        return f"{self.in_channels}->{self.out_channels} {self.size}x{self.size}{stride}"


SHAPES = (
    Shape(16, 16, 32),
    Shape(32, 32, 16),
    Shape(64, 64, 8),
    Shape(16, 32, 32, 2),
    Shape(32, 64, 16, 2),
    Shape(3, 16, 32),
)

WIDE_SHAPES = (Shape(64, 64, 56), Shape(64, 64, 32), Shape(3, 64, 32))
"""Of ResNet-18, those that the kernels know: its first stage, on images of 224 x 224 and of 32 x 32, and its stem on
the latter."""

LAYERS_TOGETHER = dict.fromkeys(SHAPES[:3], 10) | dict.fromkeys(WIDE_SHAPES[:2], 4)
"""How many layers of a shape get their weights' gradients in one launch: about as many as the network has."""

Channels = tuple[int, int]
"""Input and output channels: by these tiles are chosen."""

CONVOLUTION_CHOICES: dict[Channels, list[ConvolutionTile]] = {
    (16, 16): [
        ConvolutionTile(128, 16, 4),
        ConvolutionTile(256, 16, 4),
        ConvolutionTile(256, 16, 4, taps_ahead=3),
        ConvolutionTile(256, 16, 8),
        ConvolutionTile(64, 16, 2),
        ConvolutionTile(512, 16, 8, taps_ahead=3),
    ],
    (32, 32): [
        ConvolutionTile(128, 32, 4, taps_ahead=3),
        ConvolutionTile(128, 32, 4, taps_ahead=6),
        ConvolutionTile(128, 32, 8),
        ConvolutionTile(256, 32, 8, taps_ahead=3),
        ConvolutionTile(128, 32, 4, 2, taps_ahead=6),
        ConvolutionTile(64, 32, 4),
        ConvolutionTile(128, 16, 4),
    ],
    (64, 64): [
        ConvolutionTile(128, 32, 4, taps_ahead=3),
        ConvolutionTile(128, 32, 8, taps_ahead=6),
        ConvolutionTile(128, 32, 4, 2, taps_ahead=3),
        ConvolutionTile(64, 32, 4, taps_ahead=6),
        ConvolutionTile(64, 64, 4, 2, taps_ahead=6),
        ConvolutionTile(128, 16, 8, taps_ahead=6),
        ConvolutionTile(64, 16, 4),
    ],
    (3, 16): [ConvolutionTile(128, 16, 4), ConvolutionTile(256, 16, 4), ConvolutionTile(64, 16, 4)],
}

GRADIENT_CHOICES: dict[Channels, list[GradientTile]] = {
    (16, 16): [
        GradientTile(16, 8, 9, num_programs=264),
        GradientTile(32, 4, 9, num_programs=264),
        GradientTile(16, 4, 9, num_programs=528),
        GradientTile(32, 8, 9, num_programs=132),
        GradientTile(32, 8, 3, num_programs=264),
        GradientTile(32, 4, 3, num_programs=528),
        GradientTile(32, 8, 3, num_programs=396),
    ],
    (32, 32): [
        GradientTile(16, 8, 3, 1, 2, num_programs=132),
        GradientTile(16, 8, 3, 1, 1, num_programs=132),
        GradientTile(16, 8, 3, 1, 1, num_programs=264),
        GradientTile(32, 8, 1, 1, 1, num_programs=396),
        GradientTile(16, 4, 3, 1, 2, num_programs=264),
        GradientTile(16, 4, 9, 2, 2, num_programs=132),
        GradientTile(16, 4, 3, 2, 2, num_programs=132),
    ],
    (64, 64): [
        GradientTile(32, 4, 1, 2, 2, num_programs=126),
        GradientTile(16, 4, 1, 2, 2, num_programs=126),
        GradientTile(32, 2, 1, 2, 2, num_programs=252),
        GradientTile(16, 2, 1, 2, 4, num_programs=252),
        GradientTile(32, 2, 1, 2, 4, num_programs=126),
        GradientTile(16, 2, 3, 2, 4, num_programs=132),
    ],
    (3, 16): [
        GradientTile(16, 8, 1, num_programs=264),
        GradientTile(32, 8, 1, num_programs=132),
        GradientTile(16, 4, 1, num_programs=264),
    ],
}

BATCHED_GRADIENT_CHOICES: dict[Channels, list[GradientTile]] = {
    (16, 16): [
        GradientTile(32, 4, 9, num_programs=528),
        GradientTile(32, 4, 9, num_programs=264),
        GradientTile(16, 4, 9, num_programs=528),
        GradientTile(64, 4, 9, num_programs=528),
        GradientTile(32, 2, 9, num_programs=1056),
        GradientTile(32, 4, 3, num_programs=792),
        GradientTile(64, 4, 3, num_programs=660),
    ],
    (32, 32): [
        GradientTile(32, 2, 3, 1, 2, num_programs=528),
        GradientTile(32, 2, 3, 1, 2, num_programs=792),
        GradientTile(16, 4, 3, 1, 2, num_programs=396),
        GradientTile(32, 4, 3, 1, 2, num_programs=264),
        GradientTile(32, 4, 3, 1, 1, num_programs=396),
        GradientTile(16, 4, 3, 1, 1, num_programs=528),
        GradientTile(32, 2, 9, 2, 2, num_programs=264),
    ],
    (64, 64): [
        GradientTile(32, 1, 3, 2, 4, num_programs=264),
        GradientTile(16, 1, 3, 2, 4, num_programs=396),
        GradientTile(16, 1, 3, 2, 2, num_programs=396),
        GradientTile(32, 1, 3, 2, 2, num_programs=264),
        GradientTile(16, 2, 3, 2, 4, num_programs=132),
        GradientTile(32, 2, 1, 2, 2, num_programs=264),
        GradientTile(32, 1, 1, 2, 2, num_programs=528),
    ],
}


class Case(NamedTuple):
    """Random images, weight and output gradient of one shape, several of each, and the float32 results of the first."""

    shape: Shape
    images: list[Tensor]
    gradients: list[Tensor]
    weight: Tensor
    expected: dict[str, Tensor]


def make_case(shape: Shape, batch_size: int, num_sets: int, device: str) -> Case:
    generator = torch.Generator(device).manual_seed(sum(shape))

    def maps(channels: int, size: int) -> Tensor:
        values = torch.randn(batch_size, channels, size, size, device=device, generator=generator)
        return values.to(torch.bfloat16).contiguous(memory_format=torch.channels_last)

    small = shape.size // shape.stride
    images = [maps(shape.in_channels, shape.size) for _ in range(num_sets)]
    gradients = [maps(shape.out_channels, small) for _ in range(num_sets)]
    weight = torch.randn(shape.out_channels, shape.in_channels, 3, 3, device=device, generator=generator) / 8
    weight = weight.contiguous(memory_format=torch.channels_last)
    exact = [images[0].float().requires_grad_(), weight.to(torch.bfloat16).float().requires_grad_()]
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        output = functional.conv2d(exact[0], exact[1], stride=shape.stride, padding=1)
        by_images, by_weight = torch.autograd.grad(output, exact, gradients[0].float())
    expected = {"forward": output.detach(), "input": by_images, "weight": by_weight}
    return Case(shape, images, gradients, weight, expected)


def our_calls(case: Case) -> dict[str, Call]:
    """By operation, a function of the index of the input set."""
    size, stride, weight = case.shape.size, case.shape.stride, case.weight
    calls: dict[str, Call] = {
        "forward": lambda i: launch.convolve(case.images[i], weight, stride),
        "input": lambda i: launch.input_gradient(case.gradients[i], weight, stride, size, size),
        "weight": lambda i: weight_gradient(case.images[i], case.gradients[i], weight, stride),
    }
    if case.shape.in_channels == 3:
        del calls["input"]
    return calls


def library_calls(case: Case) -> dict[str, Call]:
    stride = [case.shape.stride] * 2
    weight = case.weight.to(torch.bfloat16)

    def backward(i: int, is_input: bool) -> Tensor:
        mask = [is_input, not is_input, False]
        images, gradient = case.images[i], case.gradients[i]
        results = torch.ops.aten.convolution_backward(
            gradient, images, weight, None, stride, [1, 1], [1, 1], False, [0, 0], 1, mask
        )
        return results[0] if is_input else results[1]

    return {
        "forward": lambda i: functional.conv2d(case.images[i], weight, stride=stride, padding=1),
        "input": lambda i: backward(i, True),
        "weight": lambda i: backward(i, False),
    }


def error(call: Call, expected: Tensor) -> float:
    # What is freed here is handed out next: a place that the kernel does not write stays not-a-number.
    for dtype in (torch.bfloat16, torch.float32):
        torch.full_like(expected, float("nan"), dtype=dtype)
    found = call(0)
    difference = (found if isinstance(found, Tensor) else torch.stack(found)).float() - expected
    return (difference.norm() / expected.norm()).item()


def microseconds(call: Call, num_sets: int) -> float:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for index in range(3):
            call(index % num_sets)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for index in range(NUM_CALLS):
            call(index % num_sets)
    graph.replay()
    times = []
    for _ in range(NUM_REPLAYS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1000 / NUM_CALLS)
    return statistics.median(times)


def floor(case: Case) -> float:
    return (case.images[0].nbytes + case.gradients[0].nbytes) / BYTES_PER_MICROSECOND


def measure(call: Call, expected: Tensor, num_sets: int, num_layers: int = 1) -> dict[str, Any]:
    """Microseconds a layer and error, or why there are none. A kernel that fails is reported, not fatal."""
    try:
        found = error(call, expected)
        if not found < MOST_ERROR:
            return {"failure": f"wrong result: error {found:.2e}", "error": found}
        return {"us": microseconds(call, num_sets) / num_layers, "error": found}
    except Exception as problem:
        return {"failure": f"{type(problem).__name__}: {str(problem).strip().splitlines()[-1][:160]}"}


def compare(case: Case, num_sets: int) -> list[dict[str, Any]]:
    """One row for each operation: ours beside the library's."""
    rows = []
    library = library_calls(case)
    for name, call in our_calls(case).items():
        row = {"shape": str(case.shape), "operation": name, "floor_us": floor(case)}
        row["ours"] = measure(call, case.expected[name], num_sets)
        for setting, is_search in (("library", False), ("library_search", True)):
            if name in library:
                with torch.backends.cudnn.flags(enabled=True, benchmark=is_search):
                    row[setting] = measure(library[name], case.expected[name], num_sets)
        rows.append(row)
    for name, operation in operations_of(case).items():
        row = {"shape": str(case.shape), "operation": name, "floor_us": operation.num_bytes / BYTES_PER_MICROSECOND}
        rows.append({**row, "ours": measure_operation(operation, num_sets)})
    return rows


def measure_operation(operation: Operation, num_sets: int) -> dict[str, Any]:
    return measure(operation.call, operation.expected, num_sets, operation.num_layers)


def compare_heads(batch_size: int, num_sets: int) -> list[dict[str, Any]]:
    rows = []
    for num_features, num_classes in HEADS:
        for name, (ours, library) in head_operations(batch_size, num_features, num_classes, num_sets, "cuda").items():
            row = {"shape": f"{num_features}->{num_classes} head", "operation": name}
            row["floor_us"] = ours.num_bytes / BYTES_PER_MICROSECOND
            row["ours"] = measure_operation(ours, num_sets)
            rows.append({**row, "library": measure(library, ours.expected, num_sets)})
    return rows


def operations_of(case: Case) -> dict[str, Operation]:
    inputs = (case.images, case.gradients, case.weight, case.shape.stride)
    operations = block_operations(*inputs, case.expected)
    if num_layers := LAYERS_TOGETHER.get(case.shape):
        operations["weights"] = weights_in_batches(*inputs, case.expected["weight"], num_layers)
    return operations


@contextmanager
def entries(table: dict[Any, Any], values: dict[Any, Any]) -> Iterator[None]:
    before = dict(table)
    table.update(values)
    try:
        yield
    finally:
        table.clear()
        table.update(before)


def tune(case: Case, num_sets: int, deadline: float) -> list[dict[str, Any]]:
    """Time of each tile in the lists above; the best of a list is marked. Stops at the deadline."""
    calls, key = our_calls(case), (case.shape.in_channels, case.shape.out_channels)
    operations = operations_of(case)
    all_operations = {name: Operation(call, case.expected[name], 0) for name, call in calls.items()} | operations

    def search(name: str, table: dict[Any, Any], key: tuple[Any, ...], choices: list[Any]) -> list[dict[str, Any]]:
        tried = []
        for tile in choices if name in all_operations else []:
            if time.monotonic() > deadline:
                break
            with entries(table, {key: tile}):
                measured = measure_operation(all_operations[name], num_sets)
            tried.append({"shape": str(case.shape), "operation": name, "tile": tile._asdict(), **measured})
        if timed := sorted((row for row in tried if "us" in row), key=lambda row: row["us"]):
            timed[0]["is_best"] = True
        return tried

    forward = search("forward", tiles.CONVOLUTION_TILES, key, CONVOLUTION_CHOICES.get(key, []))
    # All others are the same kernel: only what is good forward is worth a compilation.
    timed = sorted((row for row in forward if "us" in row), key=lambda row: row["us"])[:3]
    good = [ConvolutionTile(**row["tile"]) for row in timed]
    found = forward + search("input", tiles.CONVOLUTION_TILES, key[::-1], good)
    for name, operation in operations.items():
        if operation.is_convolution:
            found += search(name, tiles.CONVOLUTION_TILES, key, good)
    found += search("weight", tiles.GRADIENT_TILES, key, GRADIENT_CHOICES.get(key, []))
    return found + search("weights", tiles.BATCHED_GRADIENT_TILES, key, BATCHED_GRADIENT_CHOICES.get(key, []))


def main() -> int:
    arguments = parse_arguments()
    if not is_available():
        print("nothing to measure: the kernels need a GPU with bfloat16 tensor cores and Triton", file=sys.stderr)
        return 2
    started = time.monotonic()
    results: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "batch_size": arguments.batch_size,
        "compared": [],
        "tuned": [],
    }
    shapes = WIDE_SHAPES if arguments.wide else SHAPES
    cases = [make_case(shape, arguments.batch_size, arguments.sets, "cuda") for shape in shapes]
    for case in cases:
        results["compared"] += compare(case, arguments.sets)
        save(results, arguments.out)
    if not arguments.wide:
        results["compared"] += compare_heads(arguments.batch_size, arguments.sets)
    deadline = time.monotonic() + arguments.tune_seconds
    for case in cases if arguments.tune else []:
        results["tuned"] += tune(case, arguments.sets, deadline)
        save(results, arguments.out)
    print_tuned(results["tuned"])
    print_compared(results["compared"])
    print(f"{results['device']}, torch {torch.__version__}, batch {arguments.batch_size}, {arguments.sets} input sets, "
          f"{time.monotonic() - started:.0f} s")  # fmt: skip
    return 0


def save(results: dict[str, Any], path: Path | None) -> None:
    if path:
        path.write_text(json.dumps(results, indent=1) + "\n")


def text(measured: dict[str, Any] | None) -> str:
    return "" if measured is None else f"{measured['us']:.2f}" if "us" in measured else "failed"


def print_tuned(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        mark = "*" if row.get("is_best") else " "
        tile = " ".join(f"{name}={value}" for name, value in row["tile"].items())
        print(f"{mark} {row['shape']:<15} {row['operation']:<11} {row.get('us', float('nan')):8.2f}  {tile}")
        if "failure" in row:
            print(f"    {row['failure']}")


def print_compared(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        for setting in ("ours", "library", "library_search"):
            if failure := row.get(setting, {}).get("failure"):
                print(f"{row['shape']} {row['operation']} {setting}: {failure}")
    print(f"{'us a call':<15} {'':<11} {'library':>8} {'search':>8} {'ours':>8} {'times':>6} {'floor':>6} {'error':>8}")
    for row in rows:
        ours, library = (
            row["ours"],
            [row[name]["us"] for name in ("library", "library_search") if "us" in row.get(name, {})],
        )
        gain = f"{min(library) / ours['us']:.1f}" if library and "us" in ours else ""
        columns = f"{text(row.get('library')):>8} {text(row.get('library_search')):>8} {text(ours):>8} {gain:>6}"
        columns += f" {row['floor_us']:6.2f} {ours.get('error', float('nan')):8.1e}"
        print(f"{row['shape']:<15} {row['operation']:<11} {columns}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wide", action="store_true", help="the shapes of ResNet-18 instead")
    parser.add_argument("--batch-size", type=int, help="images (default 128; 64 with --wide)")
    parser.add_argument("--sets", type=int, default=8, help="input sets to rotate among, at least 2 (default 8)")
    parser.add_argument("--tune", action="store_true", help="try other tiles, too")
    parser.add_argument("--tune-seconds", type=float, default=60, help="stop trying after this long (default 60)")
    parser.add_argument("--out", type=Path, help="write all numbers to this JSON file")
    arguments = parser.parse_args()
    if arguments.sets < 2:
        parser.error(f"--sets {arguments.sets}: at least 2, since operations that add take from another set")
    arguments.batch_size = arguments.batch_size or (64 if arguments.wide else 128)
    return arguments


if __name__ == "__main__":
    sys.exit(main())
