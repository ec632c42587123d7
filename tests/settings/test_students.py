import pytest

from foster.errors import SettingsError
from foster.settings.base import check_used
from foster.settings.experiment import load_settings
from foster.settings.methods import FosterSettings
from foster.settings.students import StudentSettings


def test_the_published_method_does_none_of_it() -> None:
    assert StudentSettings().model_dump() == {
        "compress_with": "balanced",
        "compress_cutmix": 0,
        "compress_start": 1,
        "compress_old_weight": 0,
    }


def test_files_of_earlier_versions_are_read_unless_they_ask_for_what_is_gone() -> None:
    gone = {"compress_mixup": 0.0, "compress_repeats": 1, "first_teachers": 0, "first_distil": {"epochs": 7}}
    assert FosterSettings.model_validate({**gone, "temperature": 3.0}) == FosterSettings(temperature=3.0)
    with pytest.raises(SettingsError, match=r"foster.compress_mixup"):
        load_settings("digits", ["foster.compress_mixup=0.5"])


@pytest.mark.parametrize(
    ("key", "value", "needs", "lacks"),
    [
        ("distillation_weight", 2, "distillation=true", "distillation=false"),
        ("gamma", "paper", "alignment=logits", "alignment=weights"),
        ("compress_cutmix", 0.5, "compression=true", "compression=false"),
    ],
)
def test_a_setting_that_needs_another_one_is_no_silent_nothing(
    key: str, value: float | str, needs: str, lacks: str
) -> None:
    asked = f"foster.{key}={value}"
    settings = load_settings("digits", [f"foster.{lacks}", asked])
    with pytest.raises(SettingsError, match=rf"^foster.{key} has no effect: it needs {needs} \(on the command"):
        check_used([asked], settings)
    # In a file it may stand and wait.
    assert settings.remarks == [f"foster.{key}: this has no effect without {needs}"]
    check_used([asked], with_effect := load_settings("digits", [asked]))
    assert with_effect.remarks == []
    check_used(["foster.beta_boost=0.9"], settings)
    check_used([f"foster.{key}=..."], load_settings("digits", [f"foster.{lacks}"]))  # as usual
