"""Predictions and heat maps for the routes, within limits of number and time, and the metrics of a server."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import Annotated, TypeVar, cast

from fastapi import Depends, Request
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    disable_created_metrics,
    generate_latest,
)
from starlette.exceptions import HTTPException

from foster.data.photos.decode import ImageError, quiet_pillow
from foster.learner.prediction import Prediction
from foster.serving.batching import Batcher
from foster.serving.feedback import FeedbackFolder, PhotosToLabel
from foster.serving.options import Options
from foster.serving.served import Current, Served
from foster.system.memory import num_cores

logger = logging.getLogger(__name__)
Result = TypeVar("Result")

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
IMAGES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)


class Metrics:
    """The Prometheus metrics of one server; each server has a registry of its own."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = registry = CollectorRegistry()
        self.requests = Counter(
            "foster_requests", "Requests by route and status.", ("route", "status"), registry=registry
        )
        self.images = Counter("foster_images", "Images that were answered.", registry=registry)
        self.unknown = Counter("foster_unknown", "Images that were answered with 'unknown'.", registry=registry)
        self.unreadable = Counter("foster_unreadable_images", "Images that could not be decoded.", registry=registry)
        self.feedback = Counter("foster_feedback", "Photos that were stored with a label.", registry=registry)
        about = "Seconds from a prediction's request to its answer."
        self.request_seconds = Histogram("foster_request_seconds", about, buckets=SECONDS, registry=registry)
        about = "Images in each batch on the device."
        self.batch_images = Histogram("foster_batch_images", about, buckets=IMAGES, registry=registry)
        about = "Seconds of each batch on the device."
        self.batch_seconds = Histogram("foster_batch_seconds", about, buckets=SECONDS, registry=registry)
        self.in_work = Gauge("foster_images_in_work", "Images that are waiting or in progress.", registry=registry)
        self.swaps = Gauge("foster_bundle_swaps", "How often another bundle was put into use.", registry=registry)
        about = "1 while the promoted bundle cannot be loaded and another one answers."
        self.problem = Gauge("foster_bundle_problem", about, registry=registry)
        self.bundle = Info("foster_bundle", "The bundle that answers.", registry=registry)


class Service:
    """The bundle in use, its batcher, worker threads and folders; started and stopped by `running`."""

    def __init__(self, options: Options, current: Current) -> None:
        self.options = options
        self.current = current
        self.metrics = Metrics()
        self.feedback = FeedbackFolder(options.feedback) if options.feedback else None
        self.to_label = PhotosToLabel(options.to_label, self.feedback) if options.to_label and self.feedback else None
        self.num_in_work = 0
        self._batcher = Batcher(options.batch_size, self._count_batch)
        self._workers = ThreadPoolExecutor(min(16, num_cores()), "decoding")
        self._batching: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self._batching = asyncio.create_task(self._batcher.run())
        watching = asyncio.create_task(self.current.watch())
        try:
            with quiet_pillow():
                yield
        finally:
            for task in (watching, self._batching):
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
            self._workers.shutdown(wait=False, cancel_futures=True)

    @property
    def is_alive(self) -> bool:
        return self._batching is not None and not self._batching.done()

    def refuse_if_full(self, num_more: int = 1) -> None:
        if num_more > self.options.max_waiting:
            raise HTTPException(413, f"a request may have at most {self.options.max_waiting} images")
        if self.num_in_work + num_more > self.options.max_waiting:
            raise HTTPException(429, "too many images are waiting; try again", {"retry-after": "1"})

    async def predict(self, contents: Sequence[bytes]) -> tuple[Served, list[Prediction]]:
        """Decode all images in worker threads and classify them on the device, batched with other requests. Returns the
        bundle that answered, and its predictions."""
        started = time.perf_counter()
        served = self.current.now  # one bundle for the whole request, also if the link moves

        async def one(content: bytes) -> Prediction:
            try:
                image = await self.in_thread(lambda: served.decoded(content))
            except ImageError as error:
                self.metrics.unreadable.inc()
                return Prediction("", error=str(error))
            return await self._batcher.answer(served, image)

        async with self._at_work(len(contents)):
            answers = await asyncio.gather(*map(one, contents))
        self.metrics.request_seconds.observe(time.perf_counter() - started)
        good = [answer for answer in answers if answer.error is None]
        self.metrics.images.inc(len(good))
        self.metrics.unknown.inc(sum(answer.is_unknown for answer in good))
        return served, list(answers)

    async def heat_map(self, content: bytes, label: str | None) -> tuple[Served, str, bytes]:
        """The bundle, the class, and a PNG. Raises ImageError."""
        served = self.current.now
        async with self._at_work(1):
            image = await self.in_thread(lambda: served.decoded(content))
            if label is not None and label not in served.learner.class_names:
                raise HTTPException(404, "there is no such class")
            return served, *await self._batcher.on_device(lambda: served.heat_map(image, label))

    async def in_thread(self, work: Callable[[], Result]) -> Result:
        """Run blocking work (disk, decoding) in a worker thread."""
        return await asyncio.get_running_loop().run_in_executor(self._workers, work)

    def metrics_text(self) -> str:
        metrics, served = self.metrics, self.current.now
        metrics.in_work.set(self.num_in_work)
        metrics.swaps.set(self.current.num_swaps)
        metrics.problem.set(self.current.problem is not None)
        metrics.bundle.info({"name": served.name, "version": served.version})
        return generate_latest(metrics.registry).decode()

    @asynccontextmanager
    async def _at_work(self, num_images: int) -> AsyncIterator[None]:
        """Count images as in progress. A timeout or an error of the device becomes an answer with status 503."""
        self.refuse_if_full(num_images)
        self.num_in_work += num_images
        try:
            async with asyncio.timeout(self.options.timeout):
                yield
        except TimeoutError:
            raise HTTPException(503, "no answer within the time limit; try again", {"retry-after": "1"}) from None
        except (HTTPException, ImageError):
            raise
        except Exception:
            logger.exception("an answer could not be computed")
            raise HTTPException(503, "the answer could not be computed; see the log of the server") from None
        finally:
            self.num_in_work -= num_images

    def count_request(self, route: str, status: int) -> None:
        self.metrics.requests.labels(route, status).inc()

    def _count_batch(self, num_images: int, seconds: float) -> None:
        self.metrics.batch_images.observe(num_images)
        self.metrics.batch_seconds.observe(seconds)


async def service_of(request: Request) -> Service:
    return cast(Service, request.app.state.service)


RunningService = Annotated[Service, Depends(service_of)]
"""The service of the application that a route belongs to."""
