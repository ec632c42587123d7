"""Studies from their plans to their pages: all runs as one sweep, then what they found."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from foster.experiment.folder import RESULTS, RunFolder
from foster.reports.results import read_result
from foster.studies.outcome import Outcome
from foster.studies.study import Study, distinct_runs
from foster.sweep.folders import placed
from foster.sweep.grid import PlannedRun
from foster.sweep.job import find_slots
from foster.sweep.run import sweep
from foster.system.output import report


@dataclass(frozen=True)
class PlannedStudy:
    """A study, the runs of each of its variants by their names, and the folder of its page."""

    study: Study
    planned: Mapping[str, Sequence[PlannedRun]]
    page: Path


def run_studies(studies: Sequence[PlannedStudy], out: Path, jobs_per_gpu: int = 1, jobs: int = 1) -> None:
    """Train what is not finished yet as one sweep, then write and show what was found.

    A study whose runs are all finished has its page also where runs of others fail or are stopped, which is raised as a
    sweep does.
    """
    runs = distinct_runs(group for each in studies for group in each.planned.values())
    try:
        sweep(runs, out, find_slots(runs, jobs_per_gpu, jobs), has_table=False)
    finally:
        homes = {run.settings.toml(): RunFolder(out / run.name) for run in placed(runs, out)}
        for each in studies:
            groups = {name: [homes[run.settings.toml()] for run in group] for name, group in each.planned.items()}
            if all(home.is_finished for group in groups.values() for home in group):
                results = {name: [read_result(home.path / RESULTS) for home in group] for name, group in groups.items()}
                outcome = Outcome(each.study, results)
                outcome.write(each.page)
                files = f"page: {each.page / 'study.md'}, figure: {each.page / 'study.png'}"
                report(outcome.table(), files, path=each.page)
