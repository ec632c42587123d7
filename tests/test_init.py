"""What `import foster` offers."""

import subprocess
import sys

import pytest

import foster
from foster.errors import FosterError
from foster.learner.learner import Learner
from foster.learner.prediction import CalibrationWarning
from foster.learner.reports import UpdateError


def test_every_public_name_is_the_thing_itself() -> None:
    assert foster.Learner is Learner
    assert foster.FosterError is FosterError
    assert foster.UpdateError is UpdateError
    assert foster.CalibrationWarning is CalibrationWarning
    assert all(getattr(foster, name) is not None for name in foster.__all__)
    assert issubclass(foster.UpdateError, foster.FosterError)


def test_the_modules_of_events_and_losses_need_no_import_of_their_own() -> None:
    program = "import foster; print(foster.events.Evaluated.__name__, foster.losses.distillation.__name__)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["Evaluated", "distillation"]


def test_another_name_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="module 'foster' has no attribute 'Lerner'"):
        foster.Lerner  # type: ignore[attr-defined] # noqa: B018
