"""Figures of pictures: the exemplars that are kept, and where each branch looks (Grad-CAM)."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor, nn

from foster.data.images import ImageSet
from foster.errors import DataError
from foster.evaluation.gradcam import grad_cam
from foster.experiment.artifacts import kept_networks
from foster.networks.network import Network
from foster.reports.archive import Archive, RunArchive
from foster.reports.contact_sheet import without_middle
from foster.reports.style import grid_of_axes, is_narrow, new_figure, points, styled, wrapped
from foster.settings.methods import METHOD_SETTINGS, facts_of

ROWS_IN_A_BLOCK, PICTURES_IN_A_ROW = 25, 10
MOST_BLOCKS = 6
"""If there are more classes than fit, some of them are shown, evenly spread."""
PICTURES_OF_MANY_CLASSES = 6
"""Pictures in a row where there are several blocks of classes."""
NUM_EXPLAINED = 6
HEAT = "inferno"


@styled()
def exemplar_figure(archive: Archive) -> Figure:
    """A row for each class, in order of arrival: its first exemplars, in the order in which they were chosen."""
    images = archive.exemplars()
    counts = images.class_counts().tolist()
    num_shown = min(len(counts), MOST_BLOCKS * ROWS_IN_A_BLOCK)
    shown = [k * len(counts) // num_shown for k in range(num_shown)]
    num_blocks = -(-num_shown // ROWS_IN_A_BLOCK)
    num_rows = min(num_shown, ROWS_IN_A_BLOCK)
    width = 4.0 if num_blocks == 1 else 2.8
    figure = new_figure(num_blocks * width, 0.33 * num_rows + 0.4)
    for block, axes in enumerate(grid_of_axes(figure, num_blocks, num_blocks)):
        classes = shown[block * ROWS_IN_A_BLOCK : (block + 1) * ROWS_IN_A_BLOCK]
        axes.imshow(_mosaic(images, classes), interpolation="nearest", aspect="equal")
        axes.set_anchor("N")
        height = images.image_size[0] + 1
        names = [images.class_names[class_id] for class_id in classes]
        if num_blocks > 1:  # long names would cover the pictures on their left
            names = [without_middle(name) for name in names]
        names = [f"{name}  ({counts[class_id]})" for name, class_id in zip(names, classes, strict=True)]
        axes.set_yticks([height * (row + 0.5) for row in range(len(classes))], names, size=points(7))
        _picture_only(axes)
        if block == 0:
            some = f"; {num_shown} of {len(counts):,} classes" if num_shown < len(counts) else ""
            axes.set_title(f"{archive.name}: {len(images):,} {archive.kept_images}{some}")
    return figure


def grad_cam_figure(archive: RunArchive) -> Figure:
    """Test images of known classes that the old network got wrong and the grown one gets right: the evidence of the old
    and the new branches for the true class (Grad-CAM), after the last task that has such images."""
    wanted = facts_of(archive.method).grown_variant
    kept = [
        task
        for task, variant in kept_networks(archive.folder)
        if variant == wanted and 0 < task < len(archive.task_sizes)
    ]
    if not kept:
        able = ", ".join(name for name, settings in METHOD_SETTINGS.items() if settings.grown_variant)
        raise DataError(
            f"'{archive.folder}' keeps no network with a new branch; runs of method {able} with keep_networks=true do"
        )
    for task in reversed(kept):
        growth = growth_of(archive, task)
        chosen = corrected(archive, growth, task, NUM_EXPLAINED // 2 if is_narrow() else NUM_EXPLAINED)
        if len(chosen):
            return _explained(archive, growth, chosen)
    raise DataError(f"the new branches corrected no test image of a known class in '{archive.folder}'")


@dataclass(frozen=True, eq=False)
class Growth:
    """The network before a task, the new branches with their columns of the head, and the network of both."""

    old: Network
    new: Network
    whole: nn.Module


def growth_of(archive: RunArchive, task: int) -> Growth:
    whole = archive.network_after(task, facts_of(archive.method).grown_variant)
    old = cast(Network, archive.network_after(task - 1))
    return Growth(old, cast(Any, whole).beyond(old), whole)  # every variant with new branches has `beyond`


@styled()
def _explained(archive: RunArchive, growth: Growth, chosen: ImageSet) -> Figure:
    frozen, new = branch_maps(archive, growth, chosen)
    before = archive.infer(growth.old, chosen.stack).logits.argmax(1).tolist()
    row_names = ("test image", "frozen branch", "new branch" if len(growth.new.branches) == 1 else "new branches")
    figure = new_figure(1.5 * len(chosen) + 0.9, 5.2)
    panels = grid_of_axes(figure, 3 * len(chosen), len(chosen))
    for column, image in enumerate(shown_pixels(chosen)):
        picture = image.permute(1, 2, 0).numpy()
        name = chosen.class_names[int(chosen.labels[column])]
        for row, heat in enumerate((None, frozen[column], new[column])):
            axes = panels[row * len(chosen) + column]
            axes.imshow(picture)
            if heat is not None:
                # The picture keeps its colours at positions without evidence.
                axes.imshow(heat.numpy(), cmap=HEAT, alpha=0.75 * heat.numpy(), vmin=0, vmax=1)
            _picture_only(axes)
            axes.set_yticks([])
            if column == 0:
                axes.set_ylabel(row_names[row], weight="bold")
        panels[column].set_title(wrapped(name, 1.6), size=points(8.5), loc="center")
        panels[column].set_xlabel(f"before: {chosen.class_names[before[column]]}", size=points(7.5))
    return figure


def corrected(archive: RunArchive, growth: Growth, task: int, num_images: int) -> ImageSet:
    """The images that the new branches corrected, those with the highest confidence of the grown network, from
    different classes first."""
    known = archive.scenario.test_up_to(task).of_classes(0, growth.old.num_classes)
    old = archive.infer(growth.old, known.stack).logits.argmax(1)
    probability = archive.infer(growth.whole, known.stack).logits.softmax(1)
    is_corrected = (old != known.labels) & (probability.argmax(1) == known.labels)
    by_class: dict[int, list[int]] = {}
    for k in torch.argsort(probability.amax(1) * is_corrected, descending=True)[: int(is_corrected.sum())].tolist():
        by_class.setdefault(int(known.labels[k]), []).append(k)
    turns = itertools.zip_longest(*by_class.values())
    chosen = [k for turn in turns for k in turn if k is not None][:num_images]
    return known.select(torch.tensor(chosen, dtype=torch.int64))


def branch_maps(archive: RunArchive, growth: Growth, images: ImageSet) -> tuple[Tensor, Tensor]:
    """Grad-CAM maps of the old network and of the new branches for the images' own classes, `[N, H, W]` each."""
    prepared = archive.engine(torch.device("cpu")).prepare(shown_pixels(images))
    old, new = (grad_cam(part.cpu().eval(), prepared, images.labels) for part in (growth.old, growth.new))
    return old, new


def shown_pixels(images: ImageSet) -> Tensor:
    """The pixels that a network sees, uint8 `[N, 3, H, W]` on the CPU."""
    return images.stack.on_device(torch.device("cpu"))


def _mosaic(images: ImageSet, classes: Sequence[int]) -> np.ndarray:
    """A row of pictures for each class, white between them, `[H, W, 3]` uint8."""
    height, width = images.image_size
    most = PICTURES_IN_A_ROW if images.num_classes <= ROWS_IN_A_BLOCK else PICTURES_OF_MANY_CLASSES
    num_columns = min(most, max(1, int(images.class_counts().max())))
    sheet = np.full((len(classes) * (height + 1), num_columns * (width + 1), 3), 255, dtype=np.uint8)
    for row, class_id in enumerate(classes):
        chosen = images.select(torch.nonzero(images.labels == class_id).flatten()[:num_columns])
        for column, image in enumerate(shown_pixels(chosen).permute(0, 2, 3, 1).numpy()):
            top, left = row * (height + 1), column * (width + 1)
            sheet[top : top + height, left : left + width] = image
    return sheet


def _picture_only(axes: Axes) -> None:
    axes.set_xticks([])
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
