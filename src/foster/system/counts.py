"""Counts, durations and sizes as text."""

import statistics
from collections.abc import Sequence

ABSENT = "–"
"""Shown in place of a missing number."""


def counted(number: int, thing: str) -> str:
    """`1 new class`, `3 new classes`, `1,200 images`."""
    ending = "" if number == 1 else "es" if thing.endswith("s") else "s"
    return f"{number:,} {thing}{ending}"


def duration(seconds: float) -> str:
    """`7 s`, `3 min 20 s`, `2 h 05 min`."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min"


def mean_and_spread(values: Sequence[float]) -> str:
    """`72.90 ± 0.31`: mean and sample standard deviation; `72.90` for one value, a dash for none."""
    if not values:
        return ABSENT
    mean = f"{statistics.fmean(values):.2f}"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.2f}"


def percent(value: float | None) -> str:
    """`84.3 %`; a dash for none."""
    return ABSENT if value is None else f"{value:.1f} %"


def size_text(num_bytes: float) -> str:
    """`512 bytes`, `1.2 MiB`."""
    for unit in ("bytes", "KiB", "MiB"):
        if num_bytes < 1024:
            return f"{num_bytes:.0f} {unit}" if unit == "bytes" else f"{num_bytes:.1f} {unit}"
        num_bytes /= 1024
    return f"{num_bytes:.1f} GiB"
