import pytest

from foster.errors import SettingsError
from foster.settings.base import check_used
from foster.settings.experiment import load_settings
from foster.settings.methods import FosterSettings
from foster.settings.students import StudentSettings


def test_the_published_method_does_none_of_it() -> None:
    assert StudentSettings().model_dump(exclude={"first_distil", "others_weight"}) == {
        "compress_with": "balanced",
        "compress_temperature": 0,
        "compress_cutmix": 0,
        "compress_mixup": 0,
        "compress_unmixed": 0,
        "compress_repeats": 1,
        "compress_start": 1,
        "compress_old_weight": 0,
        "compress_residual": False,
        "first_cutmix": 0,
        "first_teachers": 0,
    }


def test_an_image_is_mixed_in_one_way_alone() -> None:
    FosterSettings(compress_cutmix=0.6, compress_mixup=0.4)
    with pytest.raises(SettingsError, match=r"compress_mixup.*at most 1 \(got 1.2\)"):
        load_settings("digits", ["foster.compress_cutmix=0.7", "foster.compress_mixup=0.5"])


def test_the_printed_loss_takes_no_temperature() -> None:
    load_settings("digits", ["foster.compress_with=paper"])
    with pytest.raises(SettingsError, match=r"compress_temperature: .* has no temperature; leave it at 0"):
        load_settings("digits", ["foster.compress_with=paper", "foster.compress_temperature=4"])


@pytest.mark.parametrize(
    ("key", "value", "needs", "gives"),
    [
        ("others_weight", 2, "compress_with=decoupled", ["compress_with=decoupled"]),
        ("first_distil.epochs", 9, "first_teachers=N", ["first_teachers=1"]),
        ("compress_unmixed", 0.2, "compress_cutmix=N or compress_mixup=N", ["compress_mixup=0.5"]),
        ("compress_cutmix", 0.5, "compression=true or first_teachers=N", ["compression=false", "first_teachers=1"]),
        ("compress_start", 0.5, "compression=true", ["first_teachers=1"]),
    ],
)
def test_a_setting_that_needs_another_one_is_no_silent_nothing(
    key: str, value: float, needs: str, gives: list[str]
) -> None:
    without = ["foster.compression=false"] if "compression" in needs else []
    asked, given = f"foster.{key}={value}", [f"foster.{setting}" for setting in gives]
    settings = load_settings("digits", [*without, asked])
    with pytest.raises(SettingsError, match=rf"^foster.{key} has no effect: it needs {needs} \(on the command"):
        check_used([asked], settings)
    # In a file it may stand and wait.
    assert settings.remarks == [f"foster.{key.partition('.')[0]}: this has no effect without {needs}"]
    check_used([asked], with_effect := load_settings("digits", [asked, *given]))
    assert with_effect.remarks == []
    check_used(["foster.beta_boost=0.9"], settings)
    check_used([f"foster.{key}=..."], load_settings("digits", without))  # as usual


@pytest.mark.parametrize(("teachers", "phases"), [(0, 1), (1, 2), (3, 4)])
def test_every_teacher_of_the_first_task_and_its_student_have_a_phase(teachers: int, phases: int) -> None:
    assert FosterSettings(first_teachers=teachers).num_first_phases == phases


def test_what_the_first_task_depends_on_is_told_with_what_its_student_sees() -> None:
    assert FosterSettings().first_task_options == ("first", "first_cutmix", "first_teachers")
    with_student = {*FosterSettings(first_teachers=1).first_task_options}
    assert with_student > {"first", "first_distil", "compress_cutmix", "compress_with", "temperature", "beta_compress"}
    assert not with_student & {"compress", "compression", "compress_start", "compress_repeats", "boost"}
    assert with_student < {*FosterSettings.model_fields}
