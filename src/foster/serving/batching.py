"""Images of all requests, computed together in batches on the device."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from foster.learner.reports import Prediction
from foster.serving.served import Served

Result = TypeVar("Result")


@dataclass(eq=False)
class _Waiting:
    """`arrived` is in the event loop's time."""

    served: Served
    image: Tensor
    arrived: float
    answer: "asyncio.Future[Prediction]"


class Batcher:
    """One thread uses the device. The images that arrived while it computed are its next batch.

    On an idle device, the first image waits for others, but only as long as some are known to be on their way and at
    most `window` seconds. Images of different bundles are never mixed.
    """

    def __init__(self, batch_size: int, window: float, on_batch: Callable[[int, float], None]) -> None:
        """`on_batch` gets the size of every batch and the seconds that it took."""
        self._batch_size = batch_size
        self._window = window
        self._on_batch = on_batch
        self._waiting: list[_Waiting] = []
        self._num_coming = 0
        self._changed = asyncio.Event()
        self._device = ThreadPoolExecutor(1, "device")

    @contextmanager
    def coming(self) -> Iterator[None]:
        """Announce an image that is being decoded, so that a batch may wait for it."""
        self._num_coming += 1
        try:
            yield
        finally:
            self._num_coming -= 1
            self._changed.set()

    async def answer(self, served: Served, image: Tensor) -> Prediction:
        """The prediction for an image uint8 `[3, H, W]` at the network's size."""
        loop = asyncio.get_running_loop()
        waiting = _Waiting(served, image, loop.time(), loop.create_future())
        self._waiting.append(waiting)
        self._changed.set()
        return await waiting.answer

    async def on_device(self, work: Callable[[], Result]) -> Result:
        """Run other work on the device thread, between two batches."""
        return await asyncio.get_running_loop().run_in_executor(self._device, work)

    async def run(self) -> None:
        """Compute batches until cancelled."""
        try:
            while True:
                await self._gather()
                batch = self._next_batch()
                if batch:
                    await self._answer_all(batch)
        finally:
            for waiting in self._waiting:
                waiting.answer.cancel()
            self._device.shutdown(wait=True, cancel_futures=True)

    async def _gather(self) -> None:
        """Wait until there is an image, and then up to `window` seconds for images that are about to arrive."""
        while not self._waiting:
            self._changed.clear()
            await self._changed.wait()
        loop = asyncio.get_running_loop()
        end = self._waiting[0].arrived + self._window
        while self._num_coming and len(self._waiting) < self._batch_size and loop.time() < end:
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout_at(end):
                    await self._changed.wait()

    def _next_batch(self) -> list[_Waiting]:
        """The first images of the bundle that the first image in the queue belongs to."""
        alive = [waiting for waiting in self._waiting if not waiting.answer.done()]  # the others were cancelled
        batch = [waiting for waiting in alive if waiting.served is alive[0].served][: self._batch_size]
        self._waiting = [waiting for waiting in alive if waiting not in batch]
        return batch

    async def _answer_all(self, batch: list[_Waiting]) -> None:
        loop = asyncio.get_running_loop()
        started = loop.time()

        def compute() -> list[Prediction]:
            return batch[0].served.answers(torch.stack([waiting.image for waiting in batch]))

        try:
            predictions = await self.on_device(compute)
        except Exception as error:  # the images of this batch alone fail
            for waiting in batch:
                if not waiting.answer.done():
                    waiting.answer.set_exception(error)
            return
        self._on_batch(len(batch), loop.time() - started)
        for waiting, prediction in zip(batch, predictions, strict=True):
            if not waiting.answer.done():
                waiting.answer.set_result(prediction)
