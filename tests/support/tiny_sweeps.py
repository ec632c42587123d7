"""Runs that take a second: four classes of synthetic images in two tasks, on the CPU."""

import time
from collections.abc import Callable

TINY = [
    "dataset=synthetic",
    "synthetic.num_classes=4",
    "synthetic.train_per_class=6",
    "synthetic.test_per_class=4",
    "synthetic.image_size=8",
    "memory_total=8",
    "device=cpu",
]


def wait_until(is_so: Callable[[], object]) -> None:
    until = time.monotonic() + 300
    while not is_so():
        assert time.monotonic() < until, "it never came"
        time.sleep(0.02)
