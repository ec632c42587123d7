"""Commands that show runs and bundles: table, figure, report, watch."""

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from foster.cli.options import IsJson, Plugins
from foster.errors import SettingsError
from foster.system import output
from foster.system.counts import size_text
from foster.system.files import check_ending

Folders = Annotated[list[Path], typer.Argument(metavar="RUN", help="Run folders, folders of runs, or results files.")]
Subjects = Annotated[
    list[Path], typer.Argument(metavar="RUN", help="Run folders, folders of runs, results files, bundles.")
]
Title = Annotated[str | None, typer.Option(help="The figure's title.")]
Width = Annotated[float | None, typer.Option(metavar="INCHES", min=1, max=50, help="The figure's width.")]
Height = Annotated[float | None, typer.Option(metavar="INCHES", min=1, max=50, help="The figure's height.")]
FontSize = Annotated[float | None, typer.Option(metavar="POINTS", min=3, max=40, help="The font size.")]
Style = Annotated[
    Literal["one-column", "two-column"] | None, typer.Option(help="Width and font size for a page of two columns.")
]
PictureData = Annotated[Path | None, typer.Option(help="The folder of the data files, if pictures are needed.")]


def table(
    folders: Folders,
    is_markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
    is_latex: Annotated[bool, typer.Option("--latex", help="Print LaTeX (booktabs).")] = False,
    is_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    is_json: IsJson = False,
    by_task: Annotated[bool, typer.Option("--by-task", help="Accuracy after each task, a row a run.")] = False,
    across_orders: Annotated[
        bool, typer.Option("--across-orders", help="Average over runs of different class orders, too.")
    ] = False,
) -> None:
    """Results as a table: mean and standard deviation over the seeds of one class order.

    Example: foster table runs
    """
    from foster.experiment.results import find_results
    from foster.reports import tables

    if is_markdown + is_latex + is_csv + is_json > 1:
        raise SettingsError("choose one of --markdown, --latex, --csv and --json")
    if by_task and across_orders:
        raise SettingsError("--by-task has a row for each run and --across-orders averages runs: choose one of them")
    results = find_results(folders)
    if is_csv or is_json:
        records = tables.run_records(results)
        if not by_task:
            records = tables.summary_records(results, across_orders=across_orders)
        output.echo(tables.csv_text(records) if is_csv else json.dumps(records, indent=2) + "\n", nl=False)
    else:
        grids = tables.accuracy_grids(results)
        if not by_task:
            grids = tables.summary_grids(results, across_orders=across_orders)
        if is_markdown or is_latex:
            output.echo(tables.markdown(grids) if is_markdown else tables.latex(grids), nl=False)
        else:
            output.show(tables.shown(grids))


def figure(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="What to draw.")],
    subjects: Subjects,
    out: Annotated[
        Path | None, typer.Option(help="Where to write it (.png, .svg, .pdf, .jpg, .webp); by default KIND.png.")
    ] = None,
    data: PictureData = None,
    title: Title = None,
    width: Width = None,
    height: Height = None,
    font_size: FontSize = None,
    style: Style = None,
    plugins: Plugins = None,
) -> None:
    """Draw runs or bundles; KIND is one of these.

    \b
    accuracy    accuracy after each task, with the gap at the end
    new-old     accuracy on new and on old classes, by task
    matrix      accuracy on each task after each task
    confusion   true and predicted classes, after the last task
    losses      the terms of the loss over all epochs
    head-norms  the norm of each class's row of the head
    exemplars   the pictures that are kept of each class
    tsne        features of test images after each task (runs with keep_networks=true)
    grad-cam    where the frozen and the new branch look (FOSTER with keep_networks=true)

    Example: foster figure accuracy runs --out curves.png
    """
    from foster.reports.style import ENDINGS, figure_format, save_figure, with_title

    path = out or Path(f"{kind}.png")
    check_ending(path, *ENDINGS)
    from foster.reports import figures

    with figure_format(style, width, height, font_size).used():
        drawn = figures.figure(kind, subjects, data)
        save_figure(with_title(drawn, output.printable(title)) if title else drawn, path)
    typer.echo(f"figure: {path}")


def report(
    subjects: Subjects,
    out: Annotated[Path, typer.Option(help="Where to write it.")] = Path("report.html"),
    data: PictureData = None,
    plugins: Plugins = None,
) -> None:
    """One self-contained HTML file about runs or bundles: numbers, settings, figures, every class, mistakes.

    Example: foster report runs --out report.html
    """
    check_ending(out, ".html", ".htm")
    from foster.reports.html import write_report

    write_report(subjects, out, data)
    typer.echo(f"report: {out} ({size_text(out.stat().st_size)})")


def watch(
    path: Annotated[
        Path, typer.Argument(metavar="RUN", help="The folder of a run or a sweep, or a bundle that a learn will write.")
    ],
    is_once: Annotated[bool, typer.Option("--once", help="Show the present state and exit.")] = False,
) -> None:
    """Follow a run, a learn or a sweep: phase, loss terms, accuracy, time left. Ctrl-C ends it.

    Example: foster watch runs/NAME
    """
    from foster.reports import watching

    watching.watch(path, is_once=is_once)
