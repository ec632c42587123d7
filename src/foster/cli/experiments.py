"""Commands that train: run, resume, plan, demo."""

import json
from pathlib import Path
from typing import Annotated

import typer

from foster.cli.options import (
    AllowsChangedPlugin,
    Data,
    Plugins,
    Quiet,
    Recipes,
    SettingsSource,
    TrustsPlugins,
    all_changes,
    chosen_settings,
)

Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Settings to change, e.g. method=replay seed=1.")
]
Out = Annotated[
    Path | None,
    typer.Option(
        help="The run folder; by default runs/SCENARIO-METHOD-sSEED, with the recipe, and an augmentation that is not "
        "the published one, before the seed."
    ),
]
Deterministic = Annotated[
    bool, typer.Option("--deterministic", help="The same numbers in every run on a GPU, too (engine.deterministic).")
]
Trackers = Annotated[
    list[str] | None, typer.Option("--track", metavar="MODULE:NAME", help="Tell a tracker of your own of every event.")
]
TensorBoard = Annotated[bool, typer.Option("--tensorboard", help="Write losses and accuracies to RUN/tensorboard.")]


def run(
    source: SettingsSource,
    overrides: Overrides = None,
    recipes: Recipes = None,
    data: Data = None,
    out: Out = None,
    quiet: Quiet = False,
    is_resuming: Annotated[bool, typer.Option("--resume", help="Continue the run if the folder holds it.")] = False,
    is_deterministic: Deterministic = False,
    plugins: Plugins = None,
    trusts_plugins: TrustsPlugins = False,
    allows_changed_plugin: AllowsChangedPlugin = False,
    trackers: Trackers = None,
    has_tensorboard: TensorBoard = False,
) -> None:
    """Train one method on one scenario: everything is written to the run folder."""
    changes = [*all_changes(overrides, recipes), *(["engine.deterministic=true"] if is_deterministic else [])]
    settings = chosen_settings(source, changes, data, plugins, trusts_plugins)
    # Imported only now: what is wrong with the settings is said before torch is loaded.
    from foster.cli.launch import launch

    folder, listeners = out or Path("runs") / settings.run_name, _trackers(trackers, has_tensorboard)
    launch(
        settings,
        folder,
        quiet=quiet,
        is_resuming=is_resuming,
        trackers=listeners,
        allows_changed_plugin=allows_changed_plugin,
    )


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
    trackers: Trackers = None,
    has_tensorboard: TensorBoard = False,
) -> None:
    """Continue an interrupted run where it stopped, in the middle of a phase."""
    from foster.cli.launch import relaunch

    relaunch(
        folder,
        data,
        overrides or [],
        quiet=quiet,
        trackers=_trackers(trackers, has_tensorboard),
        plugins=plugins,
        trusts_plugins=trusts_plugins,
        allows_changed_plugin=allows_changed_plugin,
    )


def _trackers(named: list[str] | None, has_tensorboard: bool) -> list[str]:
    return [*(["foster.reports.trackers:TensorBoard"] if has_tensorboard else []), *(named or [])]


def plan(
    source: SettingsSource,
    overrides: Overrides = None,
    recipes: Recipes = None,
    data: Data = None,
    is_measuring: Annotated[
        bool, typer.Option("--measure", help="Time a few real steps of each phase on this device.")
    ] = False,
    runs: Annotated[Path, typer.Option(help="The folder of earlier runs, whose times are taken.")] = Path("runs"),
    is_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON, for scripts.")] = False,
    plugins: Plugins = None,
    trusts_plugins: TrustsPlugins = False,
) -> None:
    """Show what a run would do, before anything is trained: tasks, images, exemplars, epochs, memory, time."""
    from foster.system.output import show

    settings = chosen_settings(source, all_changes(overrides, recipes), data, plugins, trusts_plugins)
    from foster.experiment.pace import measured_plan, timed_plan
    from foster.reports.plans import plan_table

    planned = measured_plan(settings) if is_measuring else timed_plan(settings, runs)
    if is_json:
        show(json.dumps(planned.to_dict() | {"remarks": settings.remarks}, indent=2))
        return
    show(plan_table(planned))
    for remark in settings.remarks:
        typer.echo(f"note: {remark}")


def prepare(
    source: SettingsSource,
    cache: Annotated[Path, typer.Option(help="The folder for the decoded photos: engine.photo_cache of later runs.")],
    overrides: Overrides = None,
    data: Data = None,
    quiet: Quiet = False,
    plugins: Plugins = None,
) -> None:
    """Decode all photos of a scenario once, into a folder on disk that later runs read; goes on where it stopped."""
    from foster.system.output import report

    settings = chosen_settings(source, overrides or [], data, plugins)
    from foster.cli.launch import prepare_photos
    from foster.system.counts import size_text

    num_bytes = prepare_photos(settings, cache, quiet=quiet)
    report(f"{cache}: {size_text(num_bytes)}; use it with engine.photo_cache={cache}", path=cache)


def demo(
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Settings to change, e.g. epochs_scale=0.1 for a quicker look."),
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder for the runs and the figure.")] = Path("runs/demo"),
    quiet: Quiet = False,
) -> None:
    """FOSTER, fine-tune and replay on embedded digits: see what forgetting is, in about a minute on two CPU cores."""
    from foster.cli.demo import show_demo

    show_demo(out, overrides or [], quiet=quiet)
