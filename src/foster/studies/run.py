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
from foster.sweep.run import sweep
from foster.sweep.slots import find_slots
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
        sweep(runs, out, find_slots(runs, jobs_per_gpu, jobs))
    finally:
        for each in studies:
            if is_finished(each.planned, out):
                outcome = outcome_of(each.study, each.planned, out)
                outcome.write(each.page)
                files = f"page: {each.page / 'study.md'}, figure: {each.page / 'study.png'}"
                report(outcome.table(), files, path=each.page)


def is_finished(planned: Mapping[str, Sequence[PlannedRun]], out: Path) -> bool:
    return all(RunFolder(out / run.name).is_finished for group in planned.values() for run in placed(group, out))


def outcome_of(study: Study, planned: Mapping[str, Sequence[PlannedRun]], out: Path) -> Outcome:
    """What the finished runs in `out` found: each is known by its settings."""
    runs = {
        name: [read_result(out / run.name / RESULTS) for run in placed(group, out)] for name, group in planned.items()
    }
    return Outcome(study, runs)
