"""One optimizer step: forward, losses, backward, update. On a GPU it can be recorded as a CUDA graph and replayed."""

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from foster.data.feed import Batch, Feed
from foster.errors import TrainingError
from foster.kernels import (
    DeferredGradients,
    ReadTooEarlyError,
    compiled_side_by_side,
    drop_kernels,
    is_available,
    is_fused,
    use_kernels,
)
from foster.networks.network import Backbone
from foster.system.processes import process_group
from foster.training.distributed import average, shared_statistics
from foster.training.engine import Engine
from foster.training.optim import Optimizer
from foster.training.phase import Objective, Phase, of_batches

NUM_WARM_UPS = 3

NUM_VARIANTS = 64
"""torch.compile's recompile limit: how many shapes and modes of one kind of part may be compiled."""


@contextmanager
def ready_step(phase: Phase, feed: Feed, engine: Engine, optimizer: Optimizer) -> Iterator["Step"]:
    """The step of a phase, compiled and recorded as the engine says, ready for batches of `feed`."""
    modules = (phase.network, *phase.teachers)
    # Kernels run only in bfloat16, and blocks that use kernels are not compiled: in float32, compiling is faster.
    choose = use_kernels if engine.kernels and engine.dtype is torch.bfloat16 else drop_kernels
    for module in modules:
        choose(module)
    with (
        shared_statistics(modules, engine.statistics == "shared" and not process_group().is_alone),
        compiled_backbones(modules, engine.compile) as switch,
    ):
        # Only full batches run compiled: the sizes of last batches differ from task to task, and each would be compiled
        # again.
        full = feed.batch_size // feed.team.size
        step = Step(
            phase.network,
            phase.objective,
            optimizer,
            engine,
            compile_for=lambda size: switch(size == full),
            num_sharing=feed.team.size,
            after_step=phase.after_step,
            teachers=phase.teachers,
        )
        if engine.capture:
            # Free the memory of the previous phase's recordings.
            torch.cuda.empty_cache()
            sizes = {feed.full_size, feed.last_size}
            step.record(sorted(sizes, reverse=True), feed.noise)
        yield step


@dataclass
class Step:
    """One optimizer step. Loss terms are summed on the device, weighted by the number of images; the host does not
    wait.

    `compile_for` is called with the size of each batch, so that only full batches run compiled. `num_sharing` processes
    divide each batch equally. `after_step` may change the `teachers`. If the step was recorded for the size of a batch,
    its CUDA graph is replayed. An epoch has at most two sizes, the full one and that of the last, incomplete batch.
    Both are recorded, so no image is dropped or padded.
    """

    network: nn.Module
    objective: Objective
    optimizer: Optimizer
    engine: Engine
    compile_for: Callable[[int], None] = lambda batch_size: None
    num_sharing: int = 1
    after_step: Callable[[], None] | None = None
    teachers: Sequence[nn.Module] = ()

    def __post_init__(self) -> None:
        self._objective = of_batches(self.objective)
        self.term_names: tuple[str, ...] = ()
        self.loss_sums = torch.zeros(0, dtype=torch.float64, device=self.engine.device)
        self._recordings: dict[int, _Recording] = {}
        self._defers = True

    def __call__(self, batch: Batch) -> None:
        recording = self._recordings.get(len(batch.labels))
        if recording is None:
            self._run(batch)
            return
        for recorded, given in zip(recording.batch.tensors(), batch.tensors(), strict=True):
            recorded.copy_(given)
        recording.graph.replay()

    def _run(self, batch: Batch) -> None:
        num_images = len(batch.labels)
        self.compile_for(num_images)
        names, losses = self._differentiated(batch) if self.term_names else self._first(batch)
        losses = average(self.optimizer.gradients(), losses)
        self.optimizer.step()
        self.optimizer.drop_gradients()
        if self.after_step is not None:
            with torch.no_grad():
                self.after_step()
        if not self.term_names:
            self.term_names = names
            self.loss_sums = torch.zeros(len(names), dtype=torch.float64, device=self.engine.device)
        self.loss_sums += losses * (num_images * self.num_sharing)

    def _differentiated(self, batch: Batch) -> tuple[tuple[str, ...], Tensor]:
        """The names and values of a batch's loss terms; computes the gradients of their sum."""
        with DeferredGradients() if self._defers else nullcontext():
            with self.engine.autocast:
                terms: object = self._objective(batch.prepared(self.engine.prepare))
            if not isinstance(terms, dict) or not terms or not all(map(_is_scalar, terms.values())):
                raise TrainingError(
                    "an objective returns its loss terms by name, each a tensor without dimensions, "
                    f"such as {{'L_CE': loss}}, not {_shapes(terms)}"
                )
            losses = torch.stack(list(terms.values()))
            losses.sum().backward()
        return tuple(terms), losses.detach()

    def _first(self, batch: Batch) -> tuple[tuple[str, ...], Tensor]:
        """The same for the first batch. If the objective also uses weights outside of the forward pass, for
        example in a penalty on their change, gradients cannot be deferred, and the batch is computed again."""
        restore = self._snapshot()
        try:
            return self._differentiated(batch)
        except ReadTooEarlyError:
            self._defers = False
            self.optimizer.drop_gradients()
            restore()
            return self._differentiated(batch)

    def record(self, batch_sizes: Sequence[int], noise: Callable[[int], Batch]) -> None:
        """Record the step for these batch sizes, with batches of `noise`; weights and loss sums are restored."""
        self._pool = torch.cuda.graph_pool_handle()
        for batch_size in batch_sizes:
            recording = None
            with suppress(torch.OutOfMemoryError):
                recording = self._attempt(noise(batch_size))
            if recording is None:
                # The memory pool of a failed recording cannot be reused.
                self._pool = torch.cuda.graph_pool_handle()
                # During a recording the allocator frees no memory; free it before the second attempt.
                torch.cuda.empty_cache()
                recording = self._attempt(noise(batch_size))
            self._recordings[batch_size] = recording

    def _attempt(self, batch: Batch) -> "_Recording":
        restore = self._snapshot()
        try:
            return self._recorded(batch, restore)
        except torch.OutOfMemoryError:
            torch.cuda.current_stream().wait_stream(capture_stream(self.engine.device.index or 0))
            self.optimizer.drop_gradients()
            restore()
            raise

    def _recorded(self, batch: Batch, restore: Callable[[], None]) -> "_Recording":
        graph = torch.cuda.CUDAGraph()
        main, stream = torch.cuda.current_stream(), capture_stream(self.engine.device.index or 0)
        stream.wait_stream(main)
        with torch.cuda.stream(stream):
            if self.engine.kernels and is_available():
                with compiled_side_by_side():
                    self._run(batch)
                restore()
            for _ in range(NUM_WARM_UPS):
                self._run(batch)
            # `torch.cuda.graph` would empty the memory cache first, and filling it again takes time. With several
            # processes, NCCL's threads make CUDA calls during the recording: "thread_local" allows them.
            mode = "global" if process_group().is_alone else "thread_local"
            graph.capture_begin(pool=self._pool, capture_error_mode=mode)
            try:
                self._run(batch)
            except BaseException:
                with suppress(RuntimeError):  # raise the cause, not the error of the recording
                    graph.capture_end()
                raise
            graph.capture_end()
        main.wait_stream(stream)
        restore()
        return _Recording(graph, batch)

    def _snapshot(self) -> Callable[[], None]:
        """A function that restores the present weights, buffers, optimizer state and loss sums, in place."""
        modules = (self.network, *(self.teachers if self.after_step else ()))
        weights = [tensor for module in modules for tensor in (*module.parameters(), *module.buffers())]
        tensors = [*weights, *self.optimizer.tensors().values()]
        values = [(tensor, tensor.detach().clone()) for tensor in tensors]
        sums = self.loss_sums.clone()

        @torch.no_grad()
        def restore() -> None:
            for tensor, value in values:
                tensor.copy_(value)
            if len(sums):
                self.loss_sums.copy_(sums)
            else:  # before the first step
                self.loss_sums.zero_()

        return restore


def _is_scalar(value: object) -> bool:
    return isinstance(value, Tensor) and not value.dim()


def _shapes(terms: object) -> str:
    """What an objective has returned, in words; no value is read, which a recording would not allow."""
    if isinstance(terms, dict):
        return "{" + ", ".join(f"'{name}': {_shapes(value)}" for name, value in terms.items()) + "}"
    return f"a tensor of shape {tuple(terms.shape)}" if isinstance(terms, Tensor) else f"a {type(terms).__name__}"


def gradients(loss: Tensor, parameters: Iterable[Tensor]) -> tuple[Tensor, ...]:
    """The gradients of `loss` with respect to `parameters`, for objectives that use gradients, such as SAM's.

    Use it in place of `torch.autograd.grad`, which would return deferred gradients before our kernels compute them.
    """
    found = torch.autograd.grad(loss, tuple(parameters))
    if deferred := DeferredGradients.current():
        deferred.compute()
    return found


@functools.cache
def capture_stream(device: int) -> torch.cuda.Stream:
    """The stream on which steps are recorded. Created once, because cuBLAS keeps a workspace for every stream."""
    # It has priority over the stream of the frozen branch, which finishes earlier.
    return torch.cuda.Stream(device, priority=-1)


@dataclass(frozen=True)
class _Recording:
    graph: torch.cuda.CUDAGraph
    batch: Batch
    """The memory that the graph reads. Each step copies its batch into it."""


@functools.cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """A method of a module, compiled: `(module, maps) -> maps`. Weights are inputs of the compiled code, so another
    module of the same shape reuses it."""
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, NUM_VARIANTS)
    return torch.compile(function, dynamic=False, fullgraph=True)


@contextmanager
def compiled_backbones(modules: Iterable[nn.Module], is_wanted: bool) -> Iterator[Callable[[bool], None]]:
    """Inside, all backbones in `modules` run compiled, except parts that use our kernels. Yields a function:
    `switch(False)` makes them run uncompiled."""
    backbones = [part for module in modules for part in module.modules() if isinstance(part, Backbone)]
    replaced = [(part, name) for backbone in backbones for part, name in _compiled_methods(backbone) if is_wanted]
    is_compiled = False

    def switch(is_on: bool) -> None:
        nonlocal is_compiled
        if is_on == is_compiled:
            return
        is_compiled = is_on
        for part, name in replaced:
            part.__dict__.pop(name, None)
            if is_on:
                part.__dict__[name] = functools.partial(_compiled(getattr(type(part), name)), part)

    switch(True)
    try:
        yield switch
    finally:
        switch(False)


def _compiled_methods(backbone: Backbone) -> list[tuple[nn.Module, str]]:
    """The methods to replace: `forward` of the backbone's `compiled_parts`, or its `stages` if it has none."""
    parts = backbone.compiled_parts()
    if not parts:
        return [(backbone, "stages")]
    return [(part, "forward") for part in parts if not is_fused(part)]
