"""The command demo: three methods on embedded digits, to show forgetting, and that FOSTER forgets less."""

from collections.abc import Sequence
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foster.cli.experiments import train
from foster.system.output import show

if TYPE_CHECKING:
    from foster.experiment.results import RunResult

METHODS = ("finetune", "replay", "foster")


def demo(
    out: Annotated[Path, typer.Option(help="The folder for the runs and the figure.")] = Path("runs/demo"),
) -> None:
    """FOSTER, fine-tune and replay on embedded digits: forgetting shown in about a minute on two CPU cores.

    Example: foster demo
    """
    from rich.text import Text

    from foster.experiment.results import find_results
    from foster.experiment.run import begin
    from foster.reports.curves import accuracy_figure
    from foster.reports.style import save_figure
    from foster.reports.tables import accuracy_grids, shown
    from foster.settings.experiment import load_settings

    folder = _free(out)
    for method in METHODS:
        train(begin, load_settings("digits", [f"method={method}"]), folder / method)
    results = find_results([folder])
    figure = folder / "accuracy.png"
    save_figure(accuracy_figure(results, "Handwritten digits, two new classes a task"), figure)
    summary = Text(_summary(results, load_settings("digits").memory_total))
    show(shown(accuracy_grids(results, has_variants=False)), summary, f"figure: {figure}\nruns:   {folder}")


def _summary(results: "Sequence[RunResult]", num_exemplars: int | None) -> str:
    """The final accuracy of fine-tuning and FOSTER, on the last task and on all tasks before it."""
    by_method = {result.method: result for result in results}
    finetune, foster = by_method["finetune"], by_method["foster"]
    num_old, num_all = finetune.classes_seen[-2:]
    return (
        f"Fine-tuning ends at {finetune.final_accuracy:.0f} %: {finetune.new_accuracy[-1]:.0f} % on the "
        f"{num_all - num_old} classes that it learned last, {finetune.old_accuracy[-1]:.0f} % on the {num_old} before "
        f"them. FOSTER ends at {foster.final_accuracy:.0f} %: {foster.new_accuracy[-1]:.0f} % and "
        f"{foster.old_accuracy[-1]:.0f} %, with one backbone and {num_exemplars} exemplars."
    )


def _free(out: Path) -> Path:
    """`out`, or `out-2`, `out-3`, ... if it exists already."""
    others = (out.parent / f"{out.name}-{number}" for number in count(2))
    return next(folder for folder in chain([out], others) if not folder.exists())
