"""Counters and histograms as Prometheus reads them."""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
IMAGES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)

COUNTERS = {
    "foster_requests_total": "Requests by route and status.",
    "foster_images_total": "Images that were answered.",
    "foster_unknown_total": "Images that were answered with 'unknown'.",
    "foster_unreadable_images_total": "Images that could not be decoded.",
    "foster_feedback_total": "Photos that were stored with a label.",
}
HISTOGRAMS: dict[str, tuple[str, Sequence[float]]] = {
    "foster_request_seconds": ("Seconds from a prediction's request to its answer.", SECONDS),
    "foster_batch_images": ("Images a batch on the device.", IMAGES),
    "foster_batch_seconds": ("Seconds a batch on the device.", SECONDS),
}
GAUGES = {
    "foster_images_in_work": "Images that wait or are in work.",
    "foster_bundle_swaps": "How often another bundle took over.",
    "foster_bundle_problem": "1 while the promoted bundle cannot be loaded and another one answers.",
    "foster_bundle_info": "The bundle that answers.",
}
Labels = tuple[tuple[str, str], ...]


@dataclass
class _Histogram:
    counts: list[int]
    total: float = 0.0


@dataclass
class Metrics:
    """Only the event loop's thread writes here."""

    counters: dict[str, Counter[Labels]] = field(default_factory=lambda: defaultdict(Counter))
    histograms: dict[str, _Histogram] = field(
        default_factory=lambda: {name: _Histogram([0] * (len(bounds) + 1)) for name, (_, bounds) in HISTOGRAMS.items()}
    )

    def count(self, name: str, amount: int = 1, **labels: str) -> None:
        assert name in COUNTERS
        self.counters[name][tuple(labels.items())] += amount

    def observe(self, name: str, value: float) -> None:
        histogram = self.histograms[name]
        histogram.counts[bisect_left(HISTOGRAMS[name][1], value)] += 1
        histogram.total += value

    def text(self, gauges: Mapping[str, tuple[float, Mapping[str, str]]]) -> str:
        """All in the text format; `gauges` are values with their labels as they are now."""
        lines: list[str] = []
        for name, about in COUNTERS.items():
            values = self.counters.get(name) or Counter({(): 0})
            lines += [*_head(name, about, "counter"), *(_line(name, labels, value) for labels, value in values.items())]
        for name, (value, labels) in gauges.items():
            lines += [*_head(name, GAUGES[name], "gauge"), _line(name, tuple(labels.items()), value)]
        for name, (about, bounds) in HISTOGRAMS.items():
            histogram, so_far = self.histograms[name], 0
            lines += _head(name, about, "histogram")
            for bound, count in zip([*bounds, float("inf")], histogram.counts, strict=True):
                so_far += count
                shown = "+Inf" if bound == float("inf") else f"{bound:g}"
                lines.append(_line(f"{name}_bucket", (("le", shown),), so_far))
            lines += [_line(f"{name}_sum", (), histogram.total), _line(f"{name}_count", (), so_far)]
        return "\n".join(lines) + "\n"


def _head(name: str, about: str, kind: str) -> list[str]:
    return [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]


def _line(name: str, labels: Labels, value: float) -> str:
    inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels)
    return f"{name}{{{inside}}} {value:.10g}" if inside else f"{name} {value:.10g}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
