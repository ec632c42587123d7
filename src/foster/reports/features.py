"""Figures of training and of what was learned: losses, t-SNE of features, norms of the head's rows."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from foster.errors import DataError
from foster.experiment.artifacts import kept_networks
from foster.networks.heads import Head, RootHead
from foster.reports.archive import Archive, RunArchive
from foster.reports.style import (
    COLOURS,
    GRID,
    INK,
    SOFT_INK,
    grid_of_axes,
    is_narrow,
    look_of,
    new_figure,
    points,
    styled,
)

MOST_CLASSES, MOST_PANELS, NARROW_PANELS, IMAGES_A_CLASS = 20, 6, 3, 40
MARKERS = "o^"
"""Markers for the first and the second use of a colour."""


@styled()
def tsne_figure(archives: Sequence[RunArchive]) -> Figure:
    """t-SNE of the features of test images: a row for each run, a panel for each task.

    At most 20 classes are shown, evenly spread over the order of arrival, each from the task in which it is learned. A
    class has the same colour in all panels. If runs have different classes or class orders, each row has its legend.
    """
    if any(archive.task_sizes != archives[0].task_sizes for archive in archives):
        raise DataError("the runs of a t-SNE figure must have the same tasks")
    fewest = min(archives, key=_num_kept)
    num_tasks = _num_kept(fewest)
    if not num_tasks:
        raise DataError(f"'{fewest.folder}' keeps no networks; run it with keep_networks=true")
    num_columns = min(num_tasks, NARROW_PANELS if is_narrow() else MOST_PANELS)
    tasks = np.unique(np.linspace(0, num_tasks - 1, num_columns).round().astype(int)).tolist()
    ends = np.cumsum(archives[0].task_sizes)
    num_classes = int(ends[num_tasks - 1])
    chosen = np.unique(np.linspace(0, num_classes - 1, min(num_classes, MOST_CLASSES)).round().astype(int))
    figure = new_figure(2.3 * len(tasks) + 1.2, 2.5 * len(archives) + 0.2)
    panels = grid_of_axes(figure, len(tasks) * len(archives), len(tasks))
    for panel, axes in enumerate(panels):
        archive, task = archives[panel // len(tasks)], tasks[panel % len(tasks)]
        places, labels = _tsne_positions(archive, task, chosen[chosen < ends[task]])
        for rank, class_id in enumerate(chosen):
            of_class = places[labels == class_id]
            colour, marker, name = COLOURS[rank % 10], MARKERS[rank // 10], archive.class_names[class_id]
            dots = axes.scatter(of_class[:, 0], of_class[:, 1], s=7, color=colour, marker=marker, label=name)
            dots.set(linewidths=0, rasterized=True)
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set(visible=True, color=GRID)
        axes.margins(0.08)
        axes.grid(visible=False)
        if panel < len(tasks):
            axes.set_title(f"{ends[task]} classes", loc="center", weight="normal", size=points(9))
        if panel % len(tasks) == 0:
            axes.set_ylabel(archive.name, weight="bold", color=look_of(archive.method).colour)
    look: dict[str, Any] = {"frameon": False, "fontsize": points(7), "labelspacing": 0.3, "handletextpad": 0}
    if all(archive.class_names == archives[0].class_names for archive in archives):
        figure.legend(handles=panels[0].collections, loc="outside right upper", markerscale=1.5, **look)
    else:
        for axes in panels[len(tasks) - 1 :: len(tasks)]:
            axes.legend(loc="upper left", bbox_to_anchor=(1, 1), borderaxespad=0, markerscale=1.5, **look)
    return figure


def _num_kept(archive: RunArchive) -> int:
    """The number of tasks, from the first on, whose networks are kept."""
    kept = kept_networks(archive.folder)
    tasks = range(len(archive.task_sizes))
    return sum(1 for _ in itertools.takewhile(lambda task: (task, archive.result.result) in kept, tasks))


def head_weight(archive: Archive) -> Tensor:
    """The rows of the head, one for each class, `[num_classes, feature_size]`."""
    head = archive.network().head
    if not isinstance(head, Head) or isinstance(head, RootHead):
        raise DataError(f"'{archive.name}' has no norms to compare: its head is a cosine head or in closed form")
    return head.weight.detach()


@styled()
def head_norm_figure(archives: Sequence[Archive]) -> Figure:
    """A panel for each run or bundle: the norm of the head's row of each class, in order of arrival, and task means.

    If the rows of the last task are the longest, the head is biased towards new classes. A head without norms, such as
    a cosine head, is left out if there are others.
    """
    norms: dict[Archive, NDArray[np.float32]] = {}
    for archive in archives:
        try:
            norms[archive] = head_weight(archive).norm(dim=1).cpu().numpy()
        except DataError:
            if not norms and archive is archives[-1]:
                raise
    figure = new_figure(8.5, 1.9 * len(norms) + 0.4, keeps_shape=False)
    panels = grid_of_axes(figure, len(norms), 1)
    for axes, (archive, values) in zip(panels, norms.items(), strict=True):
        _draw_norms(axes, archive, values)
    panels[-1].set_xlabel("class, in order of arrival; lines separate tasks")
    return figure


def _draw_norms(axes: Axes, archive: Archive, norms: NDArray[np.float32]) -> None:
    colour = look_of(archive.method).colour
    edges = np.cumsum((0, *archive.task_sizes))
    axes.bar(range(len(norms)), norms, width=0.8, color=colour, alpha=0.45, linewidth=0)
    for first, last in itertools.pairwise(edges):
        mean = float(norms[first:last].mean()) if last > first else 0.0
        axes.plot((first - 0.5, last - 0.5), (mean, mean), color=colour, linewidth=2)
        if len(edges) <= 13 and last > first:
            axes.text((first + last - 1) / 2, mean, f"{mean:.2f}", ha="center", va="bottom", size=points(8), color=INK)
    for edge in edges[1:-1].tolist():
        axes.axvline(edge - 0.5, color=SOFT_INK, linewidth=0.5)
    axes.set(title=archive.name, xlim=(-0.5, len(norms) - 0.5), ylim=(0, 1.15 * float(norms.max())))
    axes.set_ylabel("norm of row")
    if len(norms) <= MOST_CLASSES:
        names = archive.class_names[: len(norms)]
        axes.set_xticks(range(len(norms)), names, size=points(8), rotation=90 if is_narrow() else 0)


def _tsne_positions(
    archive: RunArchive, task: int, classes: NDArray[np.int64]
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """t-SNE positions `[N, 2]` and labels `[N]` of some test images of these classes, by the network after `task`."""
    from sklearn.manifold import TSNE

    test = archive.scenario.test_up_to(task)
    members = [torch.nonzero(test.labels == int(class_id)).flatten()[:IMAGES_A_CLASS] for class_id in classes]
    some = test.select(torch.cat(members))
    features = normalize(archive.infer(archive.network_after(task), some.stack).features, dim=1).numpy()
    perplexity = max(2.0, min(30.0, (len(features) - 1) / 3))
    positions = TSNE(perplexity=perplexity, init="pca", random_state=0).fit_transform(features)
    return positions, some.labels.numpy()


@styled()
def loss_figure(archives: Sequence[RunArchive]) -> Figure:
    """A panel for each run: each loss term after each epoch, over all phases of all tasks."""
    figure = new_figure(9.5, 2.6 * len(archives) + 0.3, keeps_shape=False)
    for axes, archive in zip(grid_of_axes(figure, len(archives), 1), archives, strict=True):
        _draw_losses(axes, archive)
    return figure


def _draw_losses(axes: Axes, archive: RunArchive) -> None:
    epochs = archive.epochs
    if not epochs:
        raise DataError(f"'{archive.folder}' has no epochs in its events")
    terms = list(dict.fromkeys(name for event in epochs for name in event.losses if name != "total"))
    starts = [k for k, event in enumerate(epochs) if k == 0 or event.task != epochs[k - 1].task]
    # A gap before each task, so that no line leads from one task to the next.
    numbers = np.insert(np.arange(1.0, len(epochs) + 1), starts[1:], np.nan)
    for term, colour in zip(terms, COLOURS * (1 + len(terms) // len(COLOURS)), strict=False):
        values = np.insert([event.losses.get(term, math.nan) for event in epochs], starts[1:], math.nan)
        # The loss of a phase of one epoch is a point without a line.
        axes.plot(numbers, values, ".-", label=term, color=colour, linewidth=points(1.2), markersize=points(2))
    for start in starts[1:]:
        axes.axvline(start + 0.5, color=SOFT_INK, linewidth=0.5)
    middles = [(start + end) / 2 for start, end in zip(starts, [*starts[1:], len(epochs)], strict=True)]
    if len(starts) <= 12:
        for start, middle in zip(starts, middles, strict=True):
            task = f"task {epochs[start].task + 1}"  # a first task that was copied from another run has no epochs
            axes.text(middle, 1.0, task, transform=axes.get_xaxis_transform(), ha="center", va="top", size=points(8))
    axes.margins(y=0.15)  # room for the names of the tasks
    axes.set(title=archive.title, xlim=(1, max(2, len(epochs))), ylim=(0, None))
    axes.set(xlabel="epochs, all phases of all tasks", ylabel="mean over the epoch")
    above: dict[str, Any] = {"loc": "lower right", "bbox_to_anchor": (1, 1)}
    below: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.2), "columnspacing": 1}
    place = below if is_narrow() and len(terms) > 1 else above  # a narrow figure has no room beside the title
    axes.legend(**place, ncols=len(terms), frameon=False, labelcolor="linecolor", handlelength=1)
