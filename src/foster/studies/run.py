"""A study from its plan to its page: all runs as one sweep, then what they found."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from foster.experiment.folder import RESULTS
from foster.reports.results import read_result
from foster.studies.outcome import Outcome
from foster.studies.study import Study
from foster.sweep.folders import placed
from foster.sweep.grid import PlannedRun
from foster.sweep.run import sweep
from foster.sweep.slots import find_slots
from foster.system.output import report


def run_study(
    study: Study, planned: Mapping[str, Sequence[PlannedRun]], out: Path, jobs_per_gpu: int = 1, jobs: int = 1
) -> Outcome:
    """Train what is not finished yet, then write and show what was found. What fails is raised as a sweep does."""
    runs = [run for group in planned.values() for run in group]
    sweep(runs, out, find_slots(runs, jobs_per_gpu, jobs))
    outcome = outcome_of(study, planned, out)
    outcome.write(out)
    report(outcome.table(), f"page: {out / 'study.md'}, figure: {out / 'study.png'}", path=out)
    return outcome


def outcome_of(study: Study, planned: Mapping[str, Sequence[PlannedRun]], out: Path) -> Outcome:
    """What the finished runs in `out` found: each is known by its settings."""
    runs = {
        name: [read_result(out / run.name / RESULTS) for run in placed(group, out)] for name, group in planned.items()
    }
    return Outcome(study, runs)
