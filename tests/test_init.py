"""What `import foster` offers."""

import subprocess
import sys

import pytest

import foster
from foster.errors import FosterError
from foster.learner.learner import Learner
from foster.learner.reports import CalibrationWarning, UpdateError


def test_every_public_name_is_the_thing_itself() -> None:
    assert foster.Learner is Learner
    assert foster.FosterError is FosterError
    assert foster.UpdateError is UpdateError
    assert foster.CalibrationWarning is CalibrationWarning
    assert all(getattr(foster, name) is not None for name in foster.__all__)
    assert issubclass(foster.UpdateError, foster.FosterError)


def test_another_name_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="module 'foster' has no attribute 'Lerner'"):
        foster.Lerner  # type: ignore[attr-defined] # noqa: B018


def test_the_family_of_errors_can_be_named_without_loading_torch() -> None:
    script = "import sys, foster; foster.FosterError; assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
