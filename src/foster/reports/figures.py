"""All kinds of figures by name, drawn from paths of runs and bundles."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from foster.errors import DataError, SettingsError, suggestion
from foster.experiment.results import RunResult
from foster.reports.archive import Archive, RunArchive, open_archives
from foster.reports.curves import accuracy_figure, new_old_figure
from foster.reports.features import head_norm_figure, loss_figure, tsne_figure
from foster.reports.matrices import accuracy_matrix_figure, confusion_figure
from foster.reports.pictures import exemplar_figure, grad_cam_figure


@dataclass(frozen=True)
class Kind:
    """How a figure is drawn, and one sentence on how to read it."""

    draw: Callable[[Sequence[Archive]], Figure]
    reading: str


def figure(kind: str, paths: Sequence[Path | str], data: Path | None = None) -> Figure:
    """The figure `kind` of run folders, results files or bundles; `data` is the folder of the data files."""
    if kind not in KINDS:
        raise SettingsError(f"unknown figure '{kind}'{suggestion(kind, KINDS)}")
    return KINDS[kind].draw(open_archives(paths, data))


def _runs(archives: Sequence[Archive]) -> list[RunArchive]:
    bundles = [archive.name for archive in archives if not isinstance(archive, RunArchive)]
    if bundles:
        raise DataError(f"'{bundles[0]}' is a bundle; this figure needs runs")
    return [archive for archive in archives if isinstance(archive, RunArchive)]


def _results(archives: Sequence[Archive]) -> list[RunResult]:
    return [archive.result for archive in _runs(archives)]


def _only(archives: Sequence[Archive]) -> Archive:
    if len(archives) != 1:
        raise DataError(f"this figure needs one run or bundle, not {len(archives)}")
    return archives[0]


KINDS = {
    "accuracy": Kind(
        lambda archives: accuracy_figure(_results(archives)),
        "Accuracy on all classes seen so far. The number beside a curve is its mean; an arrow is the gap between the "
        "two best at the end, if it is wide enough to be drawn.",
    ),
    "new-old": Kind(
        lambda archives: new_old_figure(_results(archives)),
        "Accuracy on the classes of the last task, and on those of all tasks before; the number beside a curve is its "
        "last value.",
    ),
    "matrix": Kind(
        lambda archives: accuracy_matrix_figure(_results(archives), [archive.name for archive in archives]),
        "Each column shows how the accuracy of a task falls while later tasks are learned.",
    ),
    "confusion": Kind(
        confusion_figure,
        "Correct predictions are on the diagonal; bright columns on the right mean that many images are predicted as "
        "the newest classes.",
    ),
    "losses": Kind(
        lambda archives: loss_figure(_runs(archives)),
        "Each term of the loss after each epoch; lines separate tasks.",
    ),
    "head-norms": Kind(
        head_norm_figure,
        "If the rows of the last task are longer than all others, the head is biased towards new classes.",
    ),
    "exemplars": Kind(
        lambda archives: exemplar_figure(_only(archives)),
        "The first images that are kept of each class, in the order of their selection; their number in brackets.",
    ),
    "tsne": Kind(
        lambda archives: tsne_figure(_runs(archives)),
        "Features of test images after each task: classes that stay apart are not forgotten.",
    ),
    "grad-cam": Kind(
        lambda archives: grad_cam_figure(_runs([_only(archives)])[0]),
        "Where the frozen and the new branch look for the true class, on images that the new branch corrected.",
    ),
}
"""All kinds of figures by name."""
