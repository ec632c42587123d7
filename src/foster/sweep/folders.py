"""The folders of a sweep's runs: a run is recognised by its settings, not by the name of its folder."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from foster.errors import DataError, FolderError, FosterError, SettingsError, explained
from foster.experiment.folder import RunFolder, differing_key
from foster.experiment.parts import check_named
from foster.experiment.plan import check_first_task
from foster.sweep.grid import PlannedRun, distinct_name
from foster.system.files import user_path


def placed(runs: Sequence[PlannedRun], out: Path) -> list[PlannedRun]:
    """The runs under the names of their folders in `out`.

    A run with the same settings that is there already is continued, or skipped if it is finished. Where a run with
    other settings has the name, the new one gets a suffix. Runs that differ only in where and how they compute are the
    same, unless the sweep varies these settings. Settings that would make a run fail at once are refused here.
    """
    held = _held(out)
    placed_runs = [replace(run, name=_name(run, out, held)) for run in runs]
    for run in placed_runs:
        _check(run, out)
    beginning = [run.settings for run in placed_runs if not RunFolder(out / run.name).holds_run]
    named = {(each.method, each.backbone, each.weights, each.options.unlabeled_source): each for each in beginning}
    for settings in named.values():
        check_named(settings)
    return placed_runs


def _held(out: Path) -> dict[str, dict[str, Any]]:
    """The settings of all readable runs in `out`, by the names of their folders."""
    with explained(FolderError, f"cannot read '{out}'"):
        folders = sorted(path for path in out.iterdir() if path.is_dir()) if out.is_dir() else []
    held = {}
    for folder in folders:
        try:
            held[folder.name] = RunFolder(folder).settings().nested()
        except FosterError:
            continue
    return held


def _name(run: PlannedRun, out: Path, held: Mapping[str, dict[str, Any]]) -> str:
    ours = run.settings.nested()
    same = [name for name, settings in held.items() if differing_key(settings, ours, counted=run.varied) is None]
    if same:
        # Of several, a finished one: it need not be trained again.
        return min(same, key=lambda name: (not RunFolder(out / name).is_finished, name != run.name, name))
    return distinct_name(run.name, run.settings) if run.name in held else run.name


def _check(run: PlannedRun, out: Path) -> None:
    if run.settings.device.startswith("cuda:"):
        raise SettingsError(
            f"device: '{run.settings.device}' cannot be chosen in a sweep, which hands out the GPUs itself; "
            "use auto, cuda or cpu, and limit the GPUs with CUDA_VISIBLE_DEVICES"
        )
    if run.settings.data and not user_path(run.settings.data).is_dir():
        raise DataError(
            f"there is no folder '{run.settings.data}' for the data (--data, or data in the settings); "
            "where it is to be downloaded, make the folder first"
        )
    folder = RunFolder(out / run.name)
    if folder.holds_run:
        folder.check_same(run.settings)
        return
    folder.check_free()
    check_first_task(run.settings)
