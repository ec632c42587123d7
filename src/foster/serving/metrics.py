"""What Prometheus reads of a server: counters, histograms, and how things are now."""

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    disable_created_metrics,
    generate_latest,
)

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
IMAGES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)


class Metrics:
    """Those of one server; others in the same process have their own."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = own = CollectorRegistry()
        self.requests = Counter("foster_requests", "Requests by route and status.", ("route", "status"), registry=own)
        self.images = Counter("foster_images", "Images that were answered.", registry=own)
        self.unknown = Counter("foster_unknown", "Images that were answered with 'unknown'.", registry=own)
        self.unreadable = Counter("foster_unreadable_images", "Images that could not be decoded.", registry=own)
        self.feedback = Counter("foster_feedback", "Photos that were stored with a label.", registry=own)
        about = "Seconds from a prediction's request to its answer."
        self.request_seconds = Histogram("foster_request_seconds", about, buckets=SECONDS, registry=own)
        about = "Images a batch on the device."
        self.batch_images = Histogram("foster_batch_images", about, buckets=IMAGES, registry=own)
        about = "Seconds a batch on the device."
        self.batch_seconds = Histogram("foster_batch_seconds", about, buckets=SECONDS, registry=own)
        self.in_work = Gauge("foster_images_in_work", "Images that wait or are in work.", registry=own)
        self.swaps = Gauge("foster_bundle_swaps", "How often another bundle took over.", registry=own)
        about = "1 while the promoted bundle cannot be loaded and another one answers."
        self.problem = Gauge("foster_bundle_problem", about, registry=own)
        self.bundle = Info("foster_bundle", "The bundle that answers.", registry=own)

    def text(self) -> str:
        return generate_latest(self._registry).decode()
