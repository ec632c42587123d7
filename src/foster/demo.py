"""The demo: three methods on embedded digits, so that one sees what forgetting is and that FOSTER does not forget."""

from pathlib import Path

from rich.text import Text

from foster.config import load_settings
from foster.launch import launch
from foster.output import report
from foster.reports.figures import accuracy_curves
from foster.reports.results import find_results
from foster.reports.tables import accuracy_table

METHODS = ("finetune", "replay", "foster")


def show_demo(out: Path, *, quiet: bool = False) -> None:
    """Run the methods in folders below `out` (or the next free name), then print the table and draw the curves."""
    folder = _free(out)
    for method in METHODS:
        launch(load_settings("digits", [f"method={method}"]), folder / method, quiet=quiet, is_shown=False)
    results = find_results([folder])
    figure = folder / "accuracy.png"
    accuracy_curves(results, figure, "Handwritten digits, two new classes a task")
    final = {result.method: result.final_accuracy for result in results}
    lesson = (
        f"Fine-tuning ends at {final['finetune']:.0f} %: it knows the last two digits and forgot the rest. "
        f"FOSTER ends at {final['foster']:.0f} %, with one backbone and {_num_exemplars()} exemplars."
    )
    report(accuracy_table(results), Text(lesson), f"figure: {figure}\nruns:   {folder}", place=folder)


def _num_exemplars() -> int | None:
    return load_settings("digits").memory_total


def _free(out: Path) -> Path:
    """`out`, or `out-2`, `out-3`, ... where it exists already."""
    number, folder = 1, out
    while folder.exists():
        number += 1
        folder = out.parent / f"{out.name}-{number}"
    return folder
