"""Run studies: all their runs as one sweep; the page of a study is written when its last run is done."""

from collections.abc import Sequence
from pathlib import Path

from foster.errors import FosterError
from foster.experiment.folder import RunFolder
from foster.experiment.parts import has_same_plugins
from foster.experiment.results import RESULTS, RunResult, read_result
from foster.settings.base import FREE_SETTINGS, flat, make
from foster.settings.experiment import Settings
from foster.settings.methods import facts_of
from foster.studies.outcome import Outcome
from foster.studies.study import PlannedStudy, distinct_runs
from foster.sweep import run as sweep
from foster.sweep.grid import PlannedRun
from foster.system.output import show

WITHOUT_EFFECT = {
    "distillation_weight": 1.0,
    "align_teacher": False,
    "align_student": False,
    "align_exponent_base": 1.0,
    "compress_start": "auto",
    "analytic_features": 0,
    "analytic_weight": 1.0,
}
"""Former settings of methods in results files, with the values at which they have no effect."""


def run_studies(
    studies: Sequence[PlannedStudy],
    out: Path,
    results: Path,
    *,
    jobs_per_gpu: int = 1,
    jobs: int = 1,
    cluster: str | None = None,
) -> None:
    """Train the runs that are neither in `out` nor in `results`, as one sweep.

    The page of a study is written and shown when its last run is done, even if runs of other studies fail. With several
    studies, each page is in a folder with the name of the study.
    """
    all_runs = distinct_runs(studies)
    done = known_results(all_runs, results)
    runs = [run for run in all_runs if run.key not in done]
    homes = {run.key: out / run.name for run in sweep.placed(runs, out)}
    open_studies = list(studies)

    def write_finished() -> None:
        for key, home in homes.items():
            if key not in done and RunFolder(home).is_finished:
                done[key] = read_result(home / RESULTS)
        for each in list(open_studies):
            if all(run.key in done for group in each.planned.values() for run in group):
                open_studies.remove(each)
                finished = {name: [done[run.key] for run in group] for name, group in each.planned.items()}
                outcome = Outcome(each.study, finished)
                page = out if len(studies) == 1 else out / each.name
                outcome.write(page)
                show(outcome.table(), f"page: {page / 'study.md'}, figure: {page / 'study.png'}")

    write_finished()
    if open_studies:
        sweep.execute(runs, out, jobs_per_gpu, jobs, cluster, write_finished)


def preview(studies: Sequence[PlannedStudy], out: Path, results: Path, jobs_per_gpu: int, jobs: int) -> str:
    """A line for each results file that is used, and a line with the state of each other run."""
    all_runs = distinct_runs(studies)
    known = known_results(all_runs, results)
    missing = [run for run in all_runs if run.key not in known]
    lines = [f"{'known':<12}{result.path}" for result in known.values()]
    return "\n".join([*lines, *([sweep.preview(missing, out, jobs_per_gpu, jobs)] if missing else [])])


def known_results(runs: Sequence[PlannedRun], folder: Path) -> dict[str, RunResult]:
    """The finished results in `folder` and its subfolders that belong to one of the runs, by the key of the run. Of
    several for one run, that of the outermost folder counts."""
    wanted = {_identity(run.settings): run.key for run in runs}
    found: dict[str, RunResult] = {}
    for path in sorted(folder.rglob("*.json"), key=lambda path: (len(path.parts), path)):
        try:
            result = read_result(path)
            settings = _settings_of(result)
        except FosterError:
            continue  # another kind of file, an unknown method, or settings of another version
        key = wanted.get(_identity(settings))
        if key and result.finished and has_same_plugins(result.content, settings):
            found.setdefault(key, result)
    return found


def _settings_of(result: RunResult) -> Settings:
    """The settings of a run. Raises SettingsError if this version does not have one of them."""
    settings = dict(result.settings)
    if isinstance(options := settings.get(result.method), dict):
        former = WITHOUT_EFFECT.keys() - facts_of(result.method).model_fields.keys()
        settings[result.method] = {
            key: value for key, value in options.items() if key not in former or value != WITHOUT_EFFECT[key]
        }
    return make(Settings, settings, str(result.path))


def _identity(settings: Settings) -> frozenset[tuple[str, str]]:
    """The identity of a run: all settings but those that say where and how it computes, without paths."""
    facts = flat(settings.published()).items()
    return frozenset((key, repr(value)) for key, value in facts if key.split(".")[0] not in FREE_SETTINGS)
