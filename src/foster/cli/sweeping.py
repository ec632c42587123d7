"""Commands that train many runs: sweep, study."""

from pathlib import Path
from typing import Annotated

import typer

from foster.cli.options import (
    Data,
    IsDryRun,
    Jobs,
    JobsPerGpu,
    Plugins,
    Recipes,
    SettingsSource,
    TrustsPlugins,
    all_changes,
)
from foster.errors import SettingsError


def sweep(
    source: SettingsSource,
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE[,VALUE]", help="The settings to vary or change.")
    ] = None,
    recipes: Recipes = None,
    data: Data = None,
    out: Annotated[Path | None, typer.Option(help="The folder of all runs; by default runs/sweep-NAME.")] = None,
    jobs_per_gpu: JobsPerGpu = 1,
    jobs: Jobs = 1,
    is_dry_run: IsDryRun = False,
    cluster: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Hand the runs to this Ray cluster; 'local' starts one here."),
    ] = None,
    plugins: Plugins = None,
    trusts_plugins: TrustsPlugins = False,
) -> None:
    """Train every combination of comma lists: method=foster,replay seed=1993,1,2 is six runs.

    Each run has its own process, folder (OUT/NAME), settings (OUT/NAME.toml) and log (OUT/NAME.log); NAME is
    SCENARIO-METHOD-sSEED and what else is given here. A run that fails does not stop the others. A value that is itself
    a list is one value: foster.beta_boost=[0.9,0.95],0.97 has two.

    A run is known by its settings. Where a folder in OUT holds a run with the same ones, by whatever name and from
    whatever sweep, it is skipped if it is finished, else continued; so sweeps that overlap can share OUT. Where and how
    a run computes (data, device, checkpoint_minutes, keep_networks, engine.*) may change, unless it is what this sweep
    varies.

    Ctrl-C lets all runs save and stop; a second one ends them at once. Runs also save and stop when the sweep itself is
    killed.

    A small network leaves most of a large GPU idle, so several runs at a time (--jobs-per-gpu 3) train more in the same
    time. Left alone, processes take turns on the GPU; under NVIDIA MPS, kernels of several processes run at the same
    instant. docs/speed.md has numbers. Start MPS before the sweep, end it after:

    \b
    nvidia-cuda-mps-control -d
    foster sweep cifar100-b0-inc10 seed=1993,1,2 --jobs-per-gpu 3
    echo quit | nvidia-cuda-mps-control
    """
    from foster.sweep.grid import default_folder, plan_runs

    runs = plan_runs(
        source,
        all_changes(overrides, recipes),
        data=str(data) if data else None,
        plugins=plugins,
        trusts_plugins=trusts_plugins or None,
    )
    folder = out or default_folder(source)
    # Only now, since it imports torch: a wrong key is answered at once.
    from foster.sweep import run as sweeping
    from foster.sweep.folders import placed
    from foster.sweep.job import find_slots
    from foster.system.counts import counted

    if cluster and not is_dry_run:
        from foster.sweep.cluster import LOCAL, connected

        # Either takes seconds.
        typer.echo("starting Ray on this machine ..." if cluster == LOCAL else f"connecting to {cluster} ...", err=True)
        with connected(cluster, jobs_per_gpu, jobs) as machines:
            sweeping.sweep(runs, folder, machines.slots(runs), machines.start)
        return
    slots = find_slots(runs, jobs_per_gpu, jobs)
    if not is_dry_run:
        sweeping.sweep(runs, folder, slots)
        return
    runs = placed(runs, folder)
    for run in runs:
        status = sweeping.status_of(run, folder)
        is_to_continue = status.is_continued and status.state == "waiting"
        typer.echo(f"{'to continue' if is_to_continue else status.state:<12}{run.name}")
    devices = ", ".join(slot.name for slot in slots)
    typer.echo(f"{counted(len(runs), 'run')}, {len(slots)} at a time ({devices}), in {folder}")


def study(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME|KEY=VALUE[,VALUE]",
            help="Names of studies or .toml files, then settings of all runs, and seeds.",
        ),
    ] = None,
    preset: Annotated[str | None, typer.Option(help="Another preset than the study's own.")] = None,
    data: Data = None,
    out: Annotated[
        Path | None, typer.Option(help="The folder of all runs; by default runs/study-NAME, or runs/studies.")
    ] = None,
    jobs_per_gpu: JobsPerGpu = 1,
    jobs: Jobs = 1,
    is_dry_run: IsDryRun = False,
    plugins: Plugins = None,
) -> None:
    """Run a study: a grid of runs, then its table, its figure, and what the paper claims beside what was found.

    NAME is one of those that 'foster study' lists, or a .toml file of your own. Runs that are finished are skipped,
    those that were interrupted go on. OUT holds a folder a run and, at the end, study.md, study.json, study.png and
    study.svg. The studies are made for CIFAR-100 B50 inc10; '--preset digits' shows each in minutes on a CPU. Several
    seeds give means and spreads: 'foster study beta seed=1993,1,2'.

    Several studies are one sweep, in which a run that they share is trained once; the page of each is in OUT/NAME.
    """
    from foster.settings.toml import packaged_names
    from foster.studies.study import distinct_runs, load_study, plan_study

    known_studies = packaged_names("studies")
    if not words:
        _list_studies(known_studies)
        return
    names = [word for word in words if "=" not in word]
    overrides = [word for word in words if "=" in word]
    titles = [Path(name).stem for name in names]
    if not names:
        raise SettingsError(f"which study? one of {', '.join(known_studies)}, or a .toml file of your own")
    if len(set(titles)) < len(titles):
        raise SettingsError(f"two studies are called '{next(title for title in titles if titles.count(title) > 1)}'")
    chosen = [load_study(name) for name in names]
    planned = [plan_study(each, preset, overrides, str(data) if data else None, plugins) for each in chosen]
    is_one = len(names) == 1
    folder = out or Path("runs") / (f"study-{titles[0]}" if is_one else "studies")
    # Only now, since it imports torch: a wrong key is answered at once.
    from foster.sweep.folders import placed

    if is_dry_run:
        different = placed(distinct_runs(runs for variants in planned for runs in variants.values()), folder)
        for title, variants in zip(titles, planned, strict=True):
            for variant, runs in variants.items():
                for run in runs:
                    typer.echo(f"{variant if is_one else f'{title}: {variant}'}: {run.name}")
        if not is_one:
            typer.echo(f"{len(different)} different runs, in {folder}")
        return
    from foster.studies.run import PlannedStudy, run_studies

    pages = [folder if is_one else folder / title for title in titles]
    studies = [PlannedStudy(*parts) for parts in zip(chosen, planned, pages, strict=True)]
    run_studies(studies, folder, jobs_per_gpu, jobs)


def _list_studies(names: list[str]) -> None:
    from foster.studies.study import load_study
    from foster.system.counts import counted

    for name in names:
        study = load_study(name)
        what = f"{study.title}: {counted(len(study.variants), 'variant')} on {study.preset}"
        typer.echo(f"{name:<{max(map(len, names))}}  {what}")
