"""The command that trains a grid of runs: sweep."""

from pathlib import Path
from typing import Annotated

import typer

from foster.cli.options import Data, IsDryRun, Jobs, JobsPerGpu, Plugins, Recipes, SettingsSource, with_recipes


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

    runs = plan_runs(source, with_recipes(overrides, recipes), data=str(data) if data else None, plugins=plugins)
    folder = out or default_folder(source)
    # Only now, since it imports torch: a wrong key is answered at once.
    from foster.sweep import run as sweeping
    from foster.sweep.folders import placed
    from foster.sweep.slots import find_slots
    from foster.system.counts import counted

    if cluster and not is_dry_run:
        from foster.sweep.cluster import LOCAL, connected
        from foster.sweep.slots import needs_gpu

        # Either takes seconds.
        typer.echo("starting Ray on this machine ..." if cluster == LOCAL else f"connecting to {cluster} ...", err=True)
        with connected(cluster, jobs_per_gpu, jobs) as machines:
            wanted = {needs_gpu(run.settings, machines.has_gpus) for run in runs}
            rooms = [slot for wants_gpu in wanted for slot in machines.slots(wants_gpu)]
            sweeping.sweep(runs, folder, rooms, machines)
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
