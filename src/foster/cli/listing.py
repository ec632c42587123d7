"""Commands that show: presets, methods, table, compare, figure, report, watch."""

from pathlib import Path
from typing import Annotated

import typer

from foster.cli.options import Plugins
from foster.errors import FolderError
from foster.system.counts import size_text

Folders = Annotated[list[Path], typer.Argument(metavar="FOLDER", help="Run folders, or folders that hold some.")]
Subjects = Annotated[
    list[Path], typer.Argument(metavar="RUN", help="Run folders, folders that hold some, results files, bundles.")
]
Data = Annotated[Path | None, typer.Option(help="The folder of the data files, where pictures are needed.")]


def presets(
    show: Annotated[
        str | None, typer.Option(metavar="NAME", help="Print all settings of one preset, or a recipe, as TOML.")
    ] = None,
) -> None:
    """List the presets, one complete settings file for each published protocol, and the recipes to lay over them."""
    from foster.settings.experiment import load_settings
    from foster.settings.toml import packaged_names, packaged_text

    if show:
        is_recipe = show in packaged_names("recipes")
        typer.echo(packaged_text("recipes", show) if is_recipe else load_settings(show).toml(), nl=False)
        return
    titles = {name: packaged_text("presets", name) for name in packaged_names("presets")}
    titles |= {f"--recipe {name}": packaged_text("recipes", name) for name in packaged_names("recipes")}
    for name, text in titles.items():
        typer.echo(f"{name:<{max(map(len, titles))}}  {text.splitlines()[0].removeprefix('# ')}")


def methods(
    show: Annotated[str | None, typer.Option(metavar="NAME", help="Print all settings of one method as TOML.")] = None,
    plugins: Plugins = None,
) -> None:
    """List the methods with their papers and settings; --show explains the settings of one."""
    from foster.reports.methods import method_list, method_settings_text

    typer.echo(method_settings_text(show) if show else method_list(), nl=False)


def table(
    folders: Folders,
    is_markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
    by_task: Annotated[bool, typer.Option("--by-task", help="Accuracy after each task, a row a run.")] = False,
) -> None:
    """Results as a table, with mean and spread over seeds."""
    from foster.reports import tables
    from foster.reports.results import find_results
    from foster.system.output import show

    results = find_results(folders)
    if is_markdown:
        grids = tables.accuracy_grids(results) if by_task else tables.summary_grids(results)
        typer.echo(tables.markdown(grids), nl=False)
    else:
        show(tables.accuracy_table(results) if by_task else tables.summary_table(results))


def compare(
    folders: Folders,
    figure: Annotated[Path, typer.Option(help="Where to write the figure (.png, .pdf, .svg, .jpg, .webp).")] = Path(
        "comparison.png"
    ),
    title: Annotated[str | None, typer.Option(help="The figure's title.")] = None,
) -> None:
    """One table and one figure of accuracy after each task, for any set of runs."""
    from foster.reports import tables
    from foster.reports.curves import accuracy_figure
    from foster.reports.results import find_results
    from foster.reports.style import check_figure_path, save_figure
    from foster.system.output import printable, show

    check_figure_path(figure)
    results = find_results(folders)
    show(tables.accuracy_table(results))
    save_figure(accuracy_figure(results, printable(title) if title else None), figure)
    typer.echo(f"figure: {figure}")


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
