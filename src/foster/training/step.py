"""One optimizer step: forward, losses, backward, update. Eager everywhere; recorded as a CUDA graph on a GPU."""

import functools
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from foster.kernels import DeferredGradients, compiled_side_by_side, is_available
from foster.training.engine import Engine
from foster.training.optim import Sgd
from foster.training.phase import Objective

NUM_WARM_UPS = 3


@functools.cache
def capture_stream(device: int) -> torch.cuda.Stream:
    """The stream on which steps are recorded. Made once: libraries keep a workspace for every stream they meet."""
    # What is trained comes first; a frozen branch beside it, which is done sooner, takes what is left of the chip.
    return torch.cuda.Stream(device, priority=-1)


class EagerStep:
    """Runs the step as it is written. Sums each loss term, weighted by images, on the device: nothing waits for it.

    `compile_for` is told the size of each batch: a compilation for every left-over size would cost more than it gives.
    """

    def __init__(
        self,
        network: nn.Module,
        objective: Objective,
        optimizer: Sgd,
        engine: Engine,
        compile_for: Callable[[int], None] = lambda batch_size: None,
    ) -> None:
        self.network = network
        self.optimizer = optimizer
        self.engine = engine
        self.term_names: tuple[str, ...] = ()
        self.loss_sums = torch.zeros(0, dtype=torch.float64, device=engine.device)
        self._objective = objective
        self._compile_for = compile_for

    def __call__(self, images: Tensor, labels: Tensor) -> None:
        self._compile_for(len(labels))
        with DeferredGradients():
            with self.engine.autocast:
                terms = self._objective(self.engine.prepare(images), labels)
            losses = torch.stack(list(terms.values()))
            losses.sum().backward()
        self.optimizer.step()
        self.optimizer.drop_gradients()
        if not self.term_names:
            self.term_names = tuple(terms)
            self.loss_sums = torch.zeros(len(terms), dtype=torch.float64, device=self.engine.device)
        self.loss_sums += losses.detach() * len(labels)


class CapturedStep:
    """The same step, recorded once for each batch size as a CUDA graph and replayed.

    An epoch has at most two batch sizes: the full one and that of the last, incomplete batch. Both are recorded, so
    every image counts exactly as it does in the eager step.
    """

    def __init__(self, step: EagerStep, sample: Tensor) -> None:
        self._step = step
        self._sample = sample
        self._recordings: dict[int, _Recording] = {}
        self._pool = torch.cuda.graph_pool_handle()

    @property
    def term_names(self) -> tuple[str, ...]:
        return self._step.term_names

    @property
    def loss_sums(self) -> Tensor:
        return self._step.loss_sums

    def record(self, batch_sizes: list[int]) -> None:
        """Record the step for these batch sizes, and leave all weights and sums as they were."""
        for batch_size in batch_sizes:
            self._recordings[batch_size] = self._record(batch_size)

    def __call__(self, images: Tensor, labels: Tensor) -> None:
        recording = self._recordings[len(labels)]
        recording.images.copy_(images)
        recording.labels.copy_(labels)
        recording.graph.replay()

    def _record(self, batch_size: int) -> "_Recording":
        with suppress(torch.OutOfMemoryError):
            return self._attempt(batch_size)
        # A pool whose only recording failed is gone.
        self._pool = torch.cuda.graph_pool_handle()
        # While it records, the allocator hands nothing back to the device, not even what it has to spare.
        torch.cuda.empty_cache()
        return self._attempt(batch_size)

    def _attempt(self, batch_size: int) -> "_Recording":
        before = _Snapshot(self._step)
        try:
            return self._recorded(batch_size, before)
        except torch.OutOfMemoryError:
            torch.cuda.current_stream().wait_stream(capture_stream(self._step.engine.device.index or 0))
            self._step.optimizer.drop_gradients()
            before.restore(self._step)
            raise

    def _recorded(self, batch_size: int, before: "_Snapshot") -> "_Recording":
        step, device = self._step, self._step.engine.device
        shape = (batch_size, *self._sample.shape[1:])
        images = torch.randint(256, shape, device=device).to(self._sample.dtype)
        labels = torch.zeros(batch_size, dtype=torch.int64, device=device)
        graph = torch.cuda.CUDAGraph()
        main, stream = torch.cuda.current_stream(), capture_stream(device.index or 0)
        stream.wait_stream(main)
        with torch.cuda.stream(stream):
            if step.engine.kernels and is_available():
                with compiled_side_by_side():
                    step(images, labels)
                before.restore(step)
            for _ in range(NUM_WARM_UPS):
                step(images, labels)
            # Not `torch.cuda.graph`: it empties the memory cache first, and filling it again takes time.
            graph.capture_begin(pool=self._pool)
            try:
                step(images, labels)
            except BaseException:
                with suppress(RuntimeError):  # the cause is told, not that the recording failed for it
                    graph.capture_end()
                raise
            graph.capture_end()
        main.wait_stream(stream)
        before.restore(step)
        return _Recording(graph, images, labels)


@dataclass(frozen=True)
class _Recording:
    graph: torch.cuda.CUDAGraph
    images: Tensor
    labels: Tensor


class _Snapshot:
    """Weights, buffers and momentum before the warm-up of a recording, to be put back in place after it."""

    def __init__(self, step: EagerStep) -> None:
        self._values = [(tensor, tensor.detach().clone()) for tensor in _all_tensors(step)]
        self._loss_sums = step.loss_sums.clone()

    def restore(self, step: EagerStep) -> None:
        with torch.no_grad():
            for tensor, value in self._values:
                tensor.copy_(value)
            if len(self._loss_sums):
                step.loss_sums.copy_(self._loss_sums)
            else:
                step.loss_sums.zero_()


def _all_tensors(step: EagerStep) -> list[Tensor]:
    return [*step.network.parameters(), *step.network.buffers(), *step.optimizer.momentum.values()]
