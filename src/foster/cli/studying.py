"""The command that runs a study: study."""

from pathlib import Path
from typing import Annotated

import typer

HELP = (
    "Run a study: a grid of runs, then its table, its figure, and what the paper claims beside what was found.\n\n"
    "NAME is one of those that 'foster study' lists, or a .toml file of your own. Runs that are finished are skipped, "
    "those that were interrupted go on. OUT holds a folder a run and, at the end, study.md, study.json, study.png and "
    "study.svg. The studies are made for CIFAR-100 B50 inc10; '--preset digits' shows each in minutes on a CPU. "
    "Several seeds give means and spreads: 'foster study beta seed=1993,1,2'."
)


def add_commands(app: typer.Typer) -> None:
    app.command(help=HELP)(study)


def study(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="A study's name, or a .toml file.")] = None,
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE[,VALUE]...]...", help="Settings of all runs, and seeds.")
    ] = None,
    preset: Annotated[str | None, typer.Option(help="Another preset than the study's own.")] = None,
    data: Annotated[Path | None, typer.Option(help="The folder of the data files.")] = None,
    out: Annotated[Path | None, typer.Option(help="The folder of all runs; by default runs/study-NAME.")] = None,
    jobs_per_gpu: Annotated[int, typer.Option(min=1, help="How many runs share each visible GPU.")] = 1,
    jobs: Annotated[int, typer.Option(min=1, help="How many runs share the CPU, where runs use it.")] = 1,
    is_dry_run: Annotated[bool, typer.Option("--dry-run", help="Check everything, list the runs, start none.")] = False,
) -> None:
    from foster.studies.study import load_study, plan_study, study_names

    if name is None:
        width = max(map(len, study_names()))
        for known in study_names():
            loaded = load_study(known)
            typer.echo(f"{known:<{width}}  {loaded.title}: {len(loaded.variants)} variants on {loaded.preset}")
        return
    chosen = load_study(name)
    planned = plan_study(chosen, preset, overrides or [], str(data) if data else None)
    folder = out or Path("runs") / f"study-{Path(name).stem}"
    # Only now, since it imports torch: a wrong key is answered at once.
    from foster.studies.run import run_study

    if is_dry_run:
        for variant, runs in planned.items():
            for run in runs:
                typer.echo(f"{variant}: {run.name}")
        return
    run_study(chosen, planned, folder, jobs_per_gpu, jobs)
