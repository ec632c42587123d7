import asyncio
import threading
from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from foster.learner.prediction import Prediction
from foster.serving.batching import Batcher
from foster.serving.served import Served


class Echo:
    """Answers with the first pixel of each image, and keeps the size of every batch."""

    def __init__(self, wait: Callable[[], object] = lambda: None) -> None:
        self.sizes: list[int] = []
        self._wait = wait

    def answers(self, images: Tensor) -> list[Prediction]:
        self.sizes.append(len(images))
        self._wait()
        return [Prediction(str(int(image.flatten()[0]))) for image in images]


def image(value: int) -> Tensor:
    return torch.full((3, 2, 2), value, dtype=torch.uint8)


def batched(batch_size: int, work: Callable[[Batcher], Any]) -> None:
    async def run() -> None:
        batcher = Batcher(batch_size, lambda size, seconds: None)
        running = asyncio.create_task(batcher.run())
        try:
            async with asyncio.timeout(30):
                await work(batcher)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    asyncio.run(run())


def served(echo: Echo) -> Served:
    return cast(Served, echo)


def test_each_gets_its_own_answer_in_batches_of_at_most_the_size() -> None:
    echo = Echo()

    async def work(batcher: Batcher) -> None:
        answers = await asyncio.gather(*(batcher.answer(served(echo), image(k)) for k in range(50)))
        assert [answer.name for answer in answers] == [str(k) for k in range(50)]

    batched(16, work)
    assert sum(echo.sizes) == 50
    assert max(echo.sizes) == 16


def test_what_arrives_while_the_device_computes_is_one_batch() -> None:
    is_begun, is_released = threading.Event(), threading.Event()

    def wait() -> None:
        is_begun.set()
        assert is_released.wait(30)

    echo = Echo(wait)

    async def work(batcher: Batcher) -> None:
        first = asyncio.create_task(batcher.answer(served(echo), image(0)))
        while not is_begun.is_set():
            await asyncio.sleep(0.001)
        others = [asyncio.create_task(batcher.answer(served(echo), image(k))) for k in range(1, 8)]
        while len(batcher._waiting) < 7:
            await asyncio.sleep(0.001)
        is_released.set()
        await asyncio.gather(first, *others)

    batched(64, work)
    assert echo.sizes == [1, 7]


def test_two_bundles_are_never_mixed_and_both_are_answered() -> None:
    old, new = Echo(), Echo()

    async def work(batcher: Batcher) -> None:
        both = [old, new] * 5
        answers = await asyncio.gather(*(batcher.answer(served(echo), image(k)) for k, echo in enumerate(both)))
        assert [answer.name for answer in answers] == [str(k) for k in range(10)]

    batched(64, work)
    assert (old.sizes, new.sizes) == ([5], [5])


def test_a_batch_that_fails_fails_alone_and_who_left_is_not_computed() -> None:
    broken, echo = Echo(lambda: 1 / 0), Echo()

    async def work(batcher: Batcher) -> None:
        with pytest.raises(ZeroDivisionError):
            await batcher.answer(served(broken), image(0))
        answers = [asyncio.create_task(batcher.answer(served(echo), image(k))) for k in range(3)]
        while len(batcher._waiting) < 3:
            await asyncio.sleep(0)
        answers[1].cancel()
        first, left, last = await asyncio.gather(*answers, return_exceptions=True)
        assert isinstance(left, asyncio.CancelledError)
        assert [answer.name for answer in (first, last) if isinstance(answer, Prediction)] == ["0", "2"]

    batched(64, work)
    assert sum(echo.sizes) == 2
