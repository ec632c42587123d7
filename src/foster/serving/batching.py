"""Images of all requests, computed together in batches on the device."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from foster.learner.prediction import Prediction
from foster.serving.served import Served

Result = TypeVar("Result")


@dataclass(eq=False)
class _Waiting:
    served: Served
    image: Tensor
    answer: "asyncio.Future[Prediction]"


class Batcher:
    """One thread uses the device. Images that arrive while it computes become its next batch. A batch never has
    images of different bundles."""

    def __init__(self, batch_size: int, on_batch: Callable[[int, float], None]) -> None:
        """`on_batch` gets the size of every batch and the seconds that it took."""
        self._batch_size = batch_size
        self._on_batch = on_batch
        self._waiting: list[_Waiting] = []
        self._has_arrived = asyncio.Event()
        self._device = ThreadPoolExecutor(1, "device")

    async def answer(self, served: Served, image: Tensor) -> Prediction:
        """The prediction for an image uint8 `[3, H, W]` at the network's size."""
        waiting = _Waiting(served, image, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._has_arrived.set()
        return await waiting.answer

    async def on_device(self, work: Callable[[], Result]) -> Result:
        """Run other work on the device thread, between two batches."""
        return await asyncio.get_running_loop().run_in_executor(self._device, work)

    async def run(self) -> None:
        """Compute batches until cancelled."""
        try:
            while await self._has_arrived.wait():
                self._has_arrived.clear()
                while batch := self._next_batch():
                    await self._answer_all(batch)
        finally:
            for waiting in self._waiting:
                waiting.answer.cancel()
            self._device.shutdown(wait=True, cancel_futures=True)

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
        except Exception as error:  # only the images of this batch fail
            for waiting in batch:
                if not waiting.answer.done():
                    waiting.answer.set_exception(error)
            return
        self._on_batch(len(batch), loop.time() - started)
        for waiting, prediction in zip(batch, predictions, strict=True):
            if not waiting.answer.done():
                waiting.answer.set_result(prediction)
