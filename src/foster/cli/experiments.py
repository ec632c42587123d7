"""Commands for experiments: run, resume, plan, sweep, study."""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foster import events
from foster.cli.options import (
    AllowsChangedPlugin,
    Cluster,
    Data,
    IsDryRun,
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
from foster.errors import FolderError, FosterError
from foster.system import output
from foster.system.signals import Stopped, stop_on_signals

if TYPE_CHECKING:
    from foster.settings.experiment import Settings

Out = Annotated[
    Path | None,
    typer.Option(
        help="The run folder; by default runs/SCENARIO-METHOD-RECIPE-AUGMENTATION-sSEED, with RECIPE if one is "
        "given and AUGMENTATION if it is not the published one."
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

    'foster resume RUN' continues a run that was interrupted.

    Example: foster run cifar100-b0-inc10 method=wa seed=1 --data data
    """
    changes = [*all_changes(overrides, recipes), *(["engine.deterministic=true"] if is_deterministic else [])]
    settings = chosen_settings(source, changes, data, plugins, trusts_plugins)
    from foster.experiment.run import begin

    folder = out or Path("runs") / settings.run_name
    train(begin, settings, folder, quiet=quiet, has_tensorboard=has_tensorboard)
    _show_results(folder)


def resume(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run that was interrupted.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE",
            help="Where and how to compute (device, checkpoint_minutes, keep_networks, engine.*), e.g. device=cpu.",
        ),
    ] = None,
    data: Data = None,
    quiet: Quiet = False,
    plugins: Plugins = None,
    trusts_plugins: TrustsPlugins = False,
    allows_changed_plugin: AllowsChangedPlugin = False,
    has_tensorboard: TensorBoard = False,
) -> None:
    """Continue an interrupted run where it stopped, even in the middle of a phase.

    Example: foster resume runs/digits-b0-inc2-wa-shift-s1993
    """
    from foster.experiment.folder import RunFolder
    from foster.experiment.run import go_on

    run_folder = RunFolder(folder)
    if run_folder.holds_run and run_folder.is_finished:
        if overrides:
            run_folder.check_same(run_folder.settings(overrides, plugins=plugins, trusts_plugins=trusts_plugins))
        output.print_stderr(f"'{folder}' is finished; nothing is left to do")
    else:
        settings = run_folder.settings(overrides or [], plugins=plugins, trusts_plugins=trusts_plugins)
        if data is not None:
            settings = settings.model_copy(update={"data": str(data)})
        work = partial(go_on, allows_changed_plugin=allows_changed_plugin)
        train(work, settings, folder, quiet=quiet, has_tensorboard=has_tensorboard)
    _show_results(folder)


def _show_results(path: Path) -> None:
    from foster.experiment.results import RESULTS, read_result
    from foster.reports.tables import accuracy_grids, shown
    from foster.system.processes import is_first_process

    if is_first_process():
        output.show(shown(accuracy_grids([read_result(path / RESULTS)])), f"results: {path / RESULTS}")


def train(
    work: Callable[..., object], settings: "Settings", path: Path, *, quiet: bool = False, has_tensorboard: bool = False
) -> None:
    """Begin or continue a run with progress on the terminal; a signal stops it after the current step."""
    from foster.experiment.folder import RunFolder
    from foster.reports.progress import progress_for
    from foster.reports.tensorboard import with_tensorboard
    from foster.system.processes import joined

    with stop_on_signals() as stop, joined() as team, ExitStack() as ends:
        listener = ends.enter_context(progress_for(quiet=quiet)) if team.is_first else events.ignore
        folder = RunFolder(path, is_written=team.is_first)
        if has_tensorboard and team.is_first:
            listener = ends.enter_context(with_tensorboard(listener, path))
        try:
            work(settings, folder, listener, stop)
        except Stopped as stopped:
            if folder.holds_run:
                stopped.add_hint(f"all is saved; continue with: {folder.resume_command(settings)}")
            raise
        except FosterError as error:
            if not team.is_first:  # the first process may only report that this one has ended
                output.print_stderr(f"process {team.rank}: {error}")
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
        int, typer.Option(metavar="N", min=0, max=100_000, help="The number of draws from the ranges.")
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
    SCENARIO-METHOD-sSEED and the other settings that are given here. A run that fails does not stop the others. A value
    that is itself a list is one value: task_sizes=[5,3,2],[4,6] has two.

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
    from foster.sweep.grid import plan_runs

    runs = plan_runs(
        source,
        all_changes(overrides, recipes),
        data=str(data) if data else None,
        plugins=plugins,
        trusts_plugins=trusts_plugins or None,
        samples=samples,
    )
    name = Path(source).stem if source.endswith(".toml") else Path(source).name
    folder = out or Path("runs") / f"sweep-{name}"
    # Imported only now, since it loads torch: before that, a wrong key is reported at once.
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
            metavar="FOLDER",
            help="Results files of runs that need not be trained again, also in subfolders; by default results.",
        ),
    ] = None,
    jobs_per_gpu: JobsPerGpu = 1,
    jobs: Jobs = 1,
    is_dry_run: IsDryRun = False,
    cluster: Cluster = None,
    plugins: Plugins = None,
) -> None:
    """Run a study: a grid of runs, then its table, its figure, and the paper's claims beside the results.

    Runs that are finished, in OUT or in the folder of results, are skipped; those that were interrupted are continued.
    OUT holds a folder a run and study.md, study.tex, study.png and study.svg, which appear when the study's last run is
    done. The ablations are made for CIFAR-100 B50 inc10; '--preset digits' shows each in minutes on a CPU. Several
    seeds give means and spreads: 'foster study beta seed=1993,1,2'.

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
    # Imported only now, since it loads torch: before that, a wrong key is reported at once.
    from foster.studies.run import preview, run_studies

    if is_dry_run:
        typer.echo(preview(studies, folder, results or Path("results"), jobs_per_gpu, jobs))
    else:
        run_studies(studies, folder, results or Path("results"), jobs_per_gpu=jobs_per_gpu, jobs=jobs, cluster=cluster)
