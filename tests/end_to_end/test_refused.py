"""A learn that was refused is not lost: it can be looked at, saved and gone on from."""

from pathlib import Path

import pytest
from small_learners import digits, small_learner

import foster
from foster.learner.reports import UpdateError


def test_what_was_refused_is_a_learner_of_its_own(tmp_path: Path) -> None:
    learner = small_learner()
    learner.learn(*digits("zero", "one"))
    with pytest.raises(UpdateError) as refused:
        learner.learn(*digits("two", "three"), max_drop=-100)
    assert learner.class_names == ("zero", "one")
    kept = refused.value.refused
    assert kept.class_names == ("zero", "one", "two", "three")
    assert foster.load(kept.save(tmp_path / "refused"), device="cpu").class_names == kept.class_names
    assert str(refused.value.report).startswith("learned 2 new classes from ")
