"""Commands that draw and report: figure, report, watch."""

from pathlib import Path
from typing import Annotated

import typer

from foster.cli.options import Plugins
from foster.errors import FolderError
from foster.system.counts import size_text

Subjects = Annotated[
    list[Path], typer.Argument(metavar="RUN", help="Run folders, folders that hold some, results files, bundles.")
]
Data = Annotated[Path | None, typer.Option(help="The folder of the data files, where pictures are needed.")]


def figure(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="What to draw.")],
    subjects: Subjects,
    out: Annotated[
        Path | None, typer.Option(help="Where to write it (.png, .svg, .pdf, .jpg, .webp); by default KIND.png.")
    ] = None,
    data: Data = None,
    plugins: Plugins = None,
) -> None:
    """Draw runs or bundles; KIND is one of nine figures.

    \b
    accuracy    accuracy after each task, with the gap at the end
    new-old     accuracy on new and on old classes, by task
    matrix      accuracy on each task after each task
    confusion   which class is taken for which, after the last task
    losses      the terms of the loss over all epochs
    head-norms  the norm of each class's row of the head
    exemplars   the pictures that are kept of each class
    tsne        features of test images after each task (runs with keep_networks=true)
    grad-cam    where the frozen and the new branch look (FOSTER with keep_networks=true)
    """
    from foster.reports.style import check_figure_path, save_figure

    path = out or Path(f"{kind}.png")
    check_figure_path(path)
    from foster.reports import figures

    save_figure(figures.figure(kind, subjects, data), path)
    typer.echo(f"figure: {path}")


def report(
    subjects: Subjects,
    out: Annotated[Path, typer.Option(help="Where to write it.")] = Path("report.html"),
    data: Data = None,
    plugins: Plugins = None,
) -> None:
    """One self-contained HTML file about runs or bundles: numbers, settings, figures, every class, mistakes."""
    if out.is_dir() or out.suffix.lower() not in (".html", ".htm"):
        raise FolderError(f"cannot write report '{out}': name a file that ends in .html")
    from foster.reports.html import write_report

    write_report(subjects, out, data)
    typer.echo(f"report: {out} ({size_text(out.stat().st_size)})")


def watch(
    path: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run or a sweep, or a bundle to be.")],
    is_once: Annotated[bool, typer.Option("--once", help="Show how it stands now, and leave.")] = False,
) -> None:
    """Look on at a run, a learn or a sweep that is under way: phase, loss terms, accuracy, time left. Ctrl-C leaves."""
    from foster.reports import watching

    watching.watch(path, is_once=is_once)
