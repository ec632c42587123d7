"""Commands for experiments: run, resume, plan, sweep, study, list, table, figure, report, watch."""

import json
import textwrap
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from foster import events
from foster.cli.options import (
    AllowsChangedPlugin,
    Cluster,
    Data,
    IsDryRun,
    IsJson,
    Jobs,
    JobsPerGpu,
    Overrides,
    Plugins,
    Quiet,
    Recipes,
    SettingsSource,
    TrustsPlugins,
    all_changes,
    chosen_settings,
)
from foster.errors import FolderError, SettingsError, suggestion
from foster.system import output
from foster.system.counts import counted, size_text
from foster.system.signals import Stopped, stop_on_signals

if TYPE_CHECKING:
    from foster.experiment.folder import RunFolder
    from foster.experiment.run import Finished
    from foster.settings.experiment import Settings

Out = Annotated[
    Path | None,
    typer.Option(
        help="The run folder; by default runs/SCENARIO-METHOD-RECIPE-AUGMENTATION-sSEED, with RECIPE where one is "
        "given and AUGMENTATION where it is not the published one."
    ),
]
Deterministic = Annotated[
    bool, typer.Option("--deterministic", help="The same numbers in every run on a GPU, too (engine.deterministic).")
]
TensorBoard = Annotated[bool, typer.Option("--tensorboard", help="Write losses and accuracies to RUN/tensorboard.")]


def run(
    source: SettingsSource,
    overrides: Overrides = None,
    recipes: Recipes = None,
    data: Data = None,
    out: Out = None,
    quiet: Quiet = False,
    is_deterministic: Deterministic = False,
    plugins: Plugins = None,
    trusts_plugins: TrustsPlugins = False,
    has_tensorboard: TensorBoard = False,
) -> None:
    """Train one method on one scenario: everything is written to the run folder.

    A run that is interrupted goes on with 'foster resume RUN'.

    Example: foster run cifar100-b0-inc10 method=wa seed=1 --data data
    """
    changes = [*all_changes(overrides, recipes), *(["engine.deterministic=true"] if is_deterministic else [])]
    settings = chosen_settings(source, changes, data, plugins, trusts_plugins)
    launch(settings, out or Path("runs") / settings.run_name, quiet=quiet, has_tensorboard=has_tensorboard)


def resume(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run that was interrupted.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE",
            help="Where and how it goes on (device, checkpoint_minutes, keep_networks, engine.*), e.g. device=cpu.",
        ),
    ] = None,
    data: Data = None,
    quiet: Quiet = False,
    plugins: Plugins = None,
    trusts_plugins: TrustsPlugins = False,
    allows_changed_plugin: AllowsChangedPlugin = False,
    has_tensorboard: TensorBoard = False,
) -> None:
    """Continue an interrupted run where it stopped, in the middle of a phase.

    Example: foster resume runs/digits-b0-inc2-wa-shift-s1993
    """
    from foster.experiment.folder import RunFolder
    from foster.experiment.run import go_on

    run_folder = RunFolder(folder)
    if run_folder.holds_run and run_folder.is_finished:
        if overrides:
            run_folder.check_same(run_folder.settings(overrides, plugins=plugins, trusts_plugins=trusts_plugins))
        output.complain(f"'{folder}' is finished; nothing is left to do")
    else:
        settings = run_folder.settings(overrides or [], plugins=plugins, trusts_plugins=trusts_plugins)
        if data is not None:
            settings = settings.model_copy(update={"data": str(data)})
        work = partial(go_on, allows_changed_plugin=allows_changed_plugin)
        _watched(work, settings, run_folder, quiet, has_tensorboard)
    _show_results(folder)


def launch(
    settings: "Settings", path: Path, *, quiet: bool = False, is_shown: bool = True, has_tensorboard: bool = False
) -> dict[str, Any]:
    """Begin a run of `settings` in the folder `path`."""
    from foster.experiment.folder import RunFolder
    from foster.experiment.run import begin

    results = _watched(begin, settings, RunFolder(path), quiet, has_tensorboard)
    if is_shown:
        _show_results(path)
    return results


def _show_results(path: Path) -> None:
    from foster.reports.results import find_results
    from foster.reports.tables import accuracy_grids, shown
    from foster.system.processes import speaks

    if speaks():
        output.show(shown(accuracy_grids(find_results([path]))), f"results: {path / 'results.json'}")


def _watched(
    work: "Callable[..., Finished]", settings: "Settings", folder: "RunFolder", quiet: bool, has_tensorboard: bool
) -> dict[str, Any]:
    """Train with progress on the terminal; a signal stops the run after the current step."""
    from foster.experiment.folder import RunFolder
    from foster.reports.progress import progress_for
    from foster.reports.tensorboard import with_tensorboard
    from foster.system.processes import joined

    with (
        stop_on_signals() as stop,
        joined() as team,
        ExitStack() as ends,
    ):
        listener = ends.enter_context(progress_for(quiet=quiet)) if team.is_first else events.ignore
        written_to = RunFolder(folder.path, is_written=team.is_first)
        if has_tensorboard and team.is_first:
            listener = ends.enter_context(with_tensorboard(listener, folder.path))
        try:
            return work(settings, written_to, listener, stop).results
        except Stopped as stopped:
            if folder.holds_run:
                stopped.add_hint(f"all is saved; continue with: {folder.resume_command(settings)}")
            raise


def plan(
    source: SettingsSource,
    overrides: Overrides = None,
    recipes: Recipes = None,
    data: Data = None,
    is_measuring: Annotated[
        bool, typer.Option("--measure", help="Time a few real steps of each phase on this device.")
    ] = False,
    plugins: Plugins = None,
    trusts_plugins: TrustsPlugins = False,
) -> None:
    """Show what a run would do, before anything is trained: tasks, images, exemplars, epochs, memory, time.

    Example: foster plan cifar100-b0-inc10 method=wa --measure --data data
    """
    settings = chosen_settings(source, all_changes(overrides, recipes), data, plugins, trusts_plugins)
    from foster.experiment.plan import make_plan, measured_plan

    planned = measured_plan(settings) if is_measuring else make_plan(settings)
    output.show(planned.table())
    for remark in settings.remarks(len(planned.tasks)):
        typer.echo(f"note: {remark}")


def sweep(
    source: SettingsSource,
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE[,VALUE]", help="The settings to vary or change.")
    ] = None,
    recipes: Recipes = None,
    data: Data = None,
    samples: Annotated[
        int, typer.Option(metavar="N", min=0, max=100_000, help="How often to draw from the ranges.")
    ] = 0,
    out: Annotated[Path | None, typer.Option(help="The folder of all runs; by default runs/sweep-NAME.")] = None,
    jobs_per_gpu: JobsPerGpu = 1,
    jobs: Jobs = 1,
    is_dry_run: IsDryRun = False,
    cluster: Cluster = None,
    plugins: Plugins = None,
    trusts_plugins: TrustsPlugins = False,
) -> None:
    """Train every combination of comma lists: method=foster,replay seed=1993,1,2 is six runs.

    A range is drawn from at random: foster.boost.learning_rate=log:0.01..0.3 --samples 20 is 20 runs with random
    values, each order of magnitude equally likely; batch_size=32..256 draws whole numbers. Choose with
    validation_share=0.1, not on test images.

    Each run has its own process, folder (OUT/NAME), settings (OUT/NAME.toml) and log (OUT/NAME.log); NAME is
    SCENARIO-METHOD-sSEED and what else is given here. A run that fails does not stop the others. A value that is itself
    a list is one value: task_sizes=[5,3,2],[4,6] has two.

    A run is recognised by its settings, the version of its plug-ins and, for photos and datasets of plug-ins, its data
    folder, not by the name of its folder. If OUT holds the run already, it is skipped if it is finished, and else
    continued, so sweeps that overlap can share OUT. Settings that say where and how a run computes (data, device,
    checkpoint_minutes, keep_networks, engine.*) do not count, unless this sweep varies them.

    Ctrl-C lets all runs save and stop; a second one ends them at once. Runs also save and stop when the sweep itself is
    killed.

    A small network leaves most of a large GPU idle, so several runs at a time (--jobs-per-gpu 3) train more in the same
    time, most of all under NVIDIA MPS (docs/speed.md).

    Example: foster sweep digits method=foster,replay seed=1993,1,2 --jobs 2
    """
    from foster.sweep.grid import default_folder, plan_runs

    runs = plan_runs(
        source,
        all_changes(overrides, recipes),
        data=str(data) if data else None,
        plugins=plugins,
        trusts_plugins=trusts_plugins or None,
        samples=samples,
    )
    folder = out or default_folder(source)
    # Imported only now, since it loads torch: a wrong key is answered at once.
    from foster.sweep.run import execute, preview

    if is_dry_run:
        typer.echo(preview(runs, folder, jobs_per_gpu, jobs))
    else:
        execute(runs, folder, jobs_per_gpu, jobs, cluster)


def study(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME|KEY=VALUE[,VALUE]",
            help="Names of studies ('foster list studies') or .toml files, then settings of all runs, and seeds; "
            "methods=A,B and protocols=A,B run a part.",
        ),
    ],
    preset: Annotated[str | None, typer.Option(metavar="PRESET", help="Another preset than the study's own.")] = None,
    recipes: Recipes = None,
    data: Data = None,
    out: Annotated[
        Path | None, typer.Option(help="The folder of all runs; by default runs/study-NAME, or runs/studies.")
    ] = None,
    results: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Results files of runs that need not be trained again; by default results."
        ),
    ] = None,
    jobs_per_gpu: JobsPerGpu = 1,
    jobs: Jobs = 1,
    is_dry_run: IsDryRun = False,
    cluster: Cluster = None,
    plugins: Plugins = None,
) -> None:
    """Run a study: a grid of runs, then its table, its figure, and what the paper claims beside what was found.

    Runs that are finished, in OUT or in the folder of results, are skipped; those that were interrupted go on. OUT
    holds a folder a run and study.md, study.tex, study.png and study.svg, which appear when the study's last run is
    done. The ablations are made for CIFAR-100 B50 inc10; '--preset digits' shows each in minutes on a CPU.
    Several seeds give means and spreads: 'foster study beta seed=1993,1,2'.

    table-1 and table-2 are the paper's tables, every method on every protocol; figure-curves is its figure of curves.
    A part of them: 'foster study table-1 methods=foster,der protocols=cifar100-b0-inc10'.

    Several studies are one sweep, in which a run that they share is trained once; the page of each is in OUT/NAME.

    Example: foster study components --preset digits
    """
    from foster.studies.study import plan_studies

    names = [word for word in words if "=" not in word]
    changes = all_changes([word for word in words if "=" in word], recipes)
    studies = plan_studies(names, preset, changes, str(data) if data else None, plugins)
    folder = out or Path("runs") / (f"study-{studies[0].name}" if len(studies) == 1 else "studies")
    if results is not None and not results.is_dir():
        raise FolderError(f"no folder '{results}' (--results)")
    # Imported only now, since it loads torch: a wrong key is answered at once.
    from foster.studies.run import preview, run_studies

    if is_dry_run:
        typer.echo(preview(studies, folder, results or Path("results"), jobs_per_gpu, jobs))
    else:
        run_studies(studies, folder, results or Path("results"), jobs_per_gpu=jobs_per_gpu, jobs=jobs, cluster=cluster)


def list_(
    kind: Annotated[
        str | None,
        typer.Argument(metavar="KIND", help="presets, recipes, methods, datasets, backbones or studies."),
    ] = None,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Print one preset, recipe, study or method's settings as TOML.")
    ] = None,
    plugins: Plugins = None,
) -> None:
    """List presets, recipes, methods, datasets, backbones or studies; with a NAME, print that one.

    Example: foster list methods foster
    """
    if kind is None:
        for each, make in LISTINGS.items():
            # The names of backbones are left out: to know them, torch is imported, which takes seconds.
            _echo_entry(each, "see 'foster list backbones'" if each == "backbones" else ", ".join(make()), 11)
        typer.echo("'foster list KIND' explains them.")
        return
    if kind not in LISTINGS:
        raise SettingsError(f"unknown kind '{kind}'{suggestion(kind, LISTINGS)}")
    listing = LISTINGS[kind]()
    if name is not None:
        typer.echo(_shown(kind, name, listing), nl=False)
        return
    for each, text in listing.items():
        _echo_entry(each, text, max(map(len, listing)) + 2)


def _echo_entry(name: str, text: str, indent: int) -> None:
    line = f"{name:<{indent}}{text}"
    typer.echo(textwrap.fill(line, 118, subsequent_indent=" " * indent, break_on_hyphens=False))


def _titles(room: str) -> dict[str, str]:
    from foster.settings.toml import packaged_names, packaged_text

    return {name: packaged_text(room, name).splitlines()[0].removeprefix("# ") for name in packaged_names(room)}


def _methods() -> dict[str, str]:
    from foster.settings.methods import METHOD_SETTINGS

    return {name: f"{one.summary} ({one.paper})" if one.paper else one.summary for name, one in METHOD_SETTINGS.items()}


def _datasets() -> dict[str, str]:
    from foster.settings.datasets import CATALOGUE

    return {name: facts.description for name, facts in CATALOGUE.items()}


def _backbones() -> dict[str, str]:
    from foster.networks import BACKBONES

    # Those with a cosine head are chosen by the methods that need one.
    return {name: _about_backbone(make) for name, make in BACKBONES.items() if not name.startswith("cosine_")}


def _about_backbone(make: Callable[..., Any]) -> str:
    """The first paragraph of the builder's docstring, and that of the stem that it is given."""
    if isinstance(make, partial):
        return " ".join(_about_backbone(each) for each in (make.func, *filter(callable, make.args)))
    return " ".join((make.__doc__ or "").split("\n\n")[0].split())


def _studies() -> dict[str, str]:
    from foster.settings.toml import packaged_names
    from foster.studies.study import load_study

    studies = {name: load_study(name) for name in packaged_names("studies")}
    return {
        name: f"{one.title}: {counted(len(one.variants), 'variant')} on {', '.join(one.presets)}"
        for name, one in studies.items()
    }


LISTINGS: dict[str, Callable[[], dict[str, str]]] = {
    "presets": lambda: _titles("presets"),
    "recipes": lambda: _titles("recipes"),
    "methods": _methods,
    "datasets": _datasets,
    "backbones": _backbones,
    "studies": _studies,
}
"""For each kind, a function that returns the names with a line about each."""


def _shown(kind: str, name: str, listing: dict[str, str]) -> str:
    from foster.settings.base import flat
    from foster.settings.experiment import load_settings
    from foster.settings.toml import packaged_text

    if kind == "presets":  # or a settings file, or the folder of a run
        settings = load_settings(name)
        shown = flat(settings.nested())
        unset = [key for key, value in flat(settings.complete()).items() if key not in shown or value is None]
        told = _comment(f"Keys without a value: {', '.join(key for key in unset if not settings.why_unused(key))}.")
        return "\n".join([settings.toml(), *told, ""])
    if name not in listing:
        raise SettingsError(f"unknown {kind.removesuffix('s')} '{name}'{suggestion(name, listing)}")
    if kind == "methods":
        return method_text(name)
    return packaged_text(kind, name) if kind in ("recipes", "studies") else f"{name}  {listing[name]}\n"


def method_text(name: str) -> str:
    """One method: its paper and classifier as comments, then all settings with their default values as TOML, each with
    its meaning as a comment."""
    from foster.reports.results import CLASSIFIERS
    from foster.settings import toml as toml_text
    from foster.settings.fit import meanings
    from foster.settings.methods import METHOD_SETTINGS

    settings = METHOD_SETTINGS[name]
    texts = meanings(settings)
    facts = [
        settings.summary,
        *([settings.paper] if settings.paper else []),
        f"Classified by: {CLASSIFIERS[settings.classifies_by]}.",
        f"Augmentation of its published results: {settings.published_augmentation}.",
    ]
    text = toml_text.dumps({name: settings().model_dump(mode="json")})
    top, table, schedules = text.partition(f"\n[{name}.")
    lines = [line for fact in facts for line in _comment(fact)]
    for line in top.splitlines():
        lines += [*_comment(texts.get(line.partition(" = ")[0], "")), line]
    return "\n".join(lines) + "\n" + table + schedules


def _comment(text: str) -> list[str]:
    return textwrap.wrap(" ".join(text.split()), 100, initial_indent="# ", subsequent_indent="# ")


Folders = Annotated[
    list[Path], typer.Argument(metavar="RUN", help="Run folders, folders that hold some, or results files.")
]
Subjects = Annotated[
    list[Path], typer.Argument(metavar="RUN", help="Run folders, folders that hold some, results files, bundles.")
]
Title = Annotated[str | None, typer.Option(help="The figure's title.")]
Width = Annotated[float | None, typer.Option(metavar="INCHES", min=1, max=50, help="The figure's width.")]
Height = Annotated[float | None, typer.Option(metavar="INCHES", min=1, max=50, help="The figure's height.")]
FontSize = Annotated[float | None, typer.Option(metavar="POINTS", min=3, max=40, help="The size of its letters.")]
Style = Annotated[
    Literal["one-column", "two-column"] | None, typer.Option(help="Width and letters for a page of two columns.")
]
PictureData = Annotated[Path | None, typer.Option(help="The folder of the data files, where pictures are needed.")]


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
    figure: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also draw accuracy after each task (.png, .pdf, .svg, .jpg, .webp)."),
    ] = None,
    title: Title = None,
    width: Width = None,
    height: Height = None,
    font_size: FontSize = None,
    style: Style = None,
) -> None:
    """Results as a table: mean and standard deviation over the seeds of one class order; and as a figure.

    Example: foster table runs --figure curves.png
    """
    from foster.reports import tables
    from foster.reports.results import find_results
    from foster.reports.style import check_figure_path, figure_format, save_figure

    if is_markdown + is_latex + is_csv + is_json > 1:
        raise SettingsError("--markdown, --latex, --csv and --json exclude each other")
    if by_task and across_orders:
        raise SettingsError("--by-task has a row a run and --across-orders averages runs: they exclude each other")
    if figure is not None:
        check_figure_path(figure)
    chosen = figure_format(style, width, height, font_size)
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
    if figure is not None:
        from foster.reports.curves import accuracy_figure

        with chosen.used():
            heading = output.printable(title) if title else None
            save_figure(accuracy_figure(results, heading, across_orders=across_orders), figure)
        typer.echo(f"figure: {figure}", err=is_markdown or is_latex or is_csv or is_json)


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

    Example: foster figure confusion runs/A runs/B --out confusion.png
    """
    from foster.reports.style import check_figure_path, entitled, figure_format, save_figure

    path = out or Path(f"{kind}.png")
    check_figure_path(path)
    from foster.reports import figures

    with figure_format(style, width, height, font_size).used():
        drawn = figures.figure(kind, subjects, data)
        save_figure(entitled(drawn, output.printable(title)) if title else drawn, path)
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
    if out.is_dir() or out.suffix.lower() not in (".html", ".htm"):
        raise FolderError(f"cannot write report '{out}': name a file that ends in .html")
    from foster.reports.html import write_report

    write_report(subjects, out, data)
    typer.echo(f"report: {out} ({size_text(out.stat().st_size)})")


def watch(
    path: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run or a sweep, or a bundle to be.")],
    is_once: Annotated[bool, typer.Option("--once", help="Show how it stands now, and leave.")] = False,
) -> None:
    """Follow a run, a learn or a sweep: phase, loss terms, accuracy, time left. Ctrl-C leaves.

    Example: foster watch runs/NAME
    """
    from foster.reports import watching

    watching.watch(path, is_once=is_once)
