"""The demo: three methods on embedded digits, so that one sees what forgetting is and that FOSTER does not forget."""

from collections.abc import Sequence
from itertools import chain, count
from pathlib import Path

from rich.text import Text

from foster.cli.launch import launch
from foster.reports.curves import accuracy_figure
from foster.reports.results import RunResult, find_results
from foster.reports.style import save_figure
from foster.reports.tables import accuracy_table
from foster.settings.experiment import load_settings
from foster.system.output import report

METHODS = ("finetune", "replay", "foster")


def show_demo(out: Path, overrides: Sequence[str] = (), *, quiet: bool = False) -> None:
    """Run the methods in folders below `out` (or the next free name), then print the table and draw the curves."""
    folder = _free(out)
    for method in METHODS:
        launch(load_settings("digits", [*overrides, f"method={method}"]), folder / method, quiet=quiet, is_shown=False)
    results = find_results([folder])
    figure = folder / "accuracy.png"
    save_figure(accuracy_figure(results, "Handwritten digits, two new classes a task"), figure)
    report(accuracy_table(results), Text(lesson(results)), f"figure: {figure}\nruns:   {folder}", path=folder)


def lesson(results: Sequence[RunResult]) -> str:
    """What fine-tuning and FOSTER know in the end, of the last task and of all before it."""
    by_method = {result.method: result for result in results}
    finetune, foster = by_method["finetune"], by_method["foster"]
    num_old, num_all = finetune.classes_seen[-2:]
    num_exemplars = load_settings("digits").memory_total
    return (
        f"Fine-tuning ends at {finetune.final_accuracy:.0f} %: {finetune.new_accuracy[-1]:.0f} % on the "
        f"{num_all - num_old} classes that it learned last, {finetune.old_accuracy[-1]:.0f} % on the {num_old} before "
        f"them. FOSTER ends at {foster.final_accuracy:.0f} %: {foster.new_accuracy[-1]:.0f} % and "
        f"{foster.old_accuracy[-1]:.0f} %, with one backbone and {num_exemplars} exemplars."
    )


def _free(out: Path) -> Path:
    """`out`, or `out-2`, `out-3`, ... where it exists already."""
    others = (out.parent / f"{out.name}-{number}" for number in count(2))
    return next(folder for folder in chain([out], others) if not folder.exists())
