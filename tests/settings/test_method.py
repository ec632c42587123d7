"""What the settings of every method can do."""

import pytest

from foster.errors import SettingsError
from foster.settings.base import check_used
from foster.settings.experiment import load_settings
from foster.settings.foster import FosterSettings
from foster.settings.methods import METHOD_SETTINGS


def test_every_schedule_is_stretched() -> None:
    options = FosterSettings().scaled(0.5)
    assert (options.first.epochs, options.boost.epochs, options.compress.epochs) == (100, 85, 65)


def test_what_needs_another_setting_says_so_beside_its_type_and_keeps_its_bounds() -> None:
    assert METHOD_SETTINGS["wa"].needs() == {"distillation_weight": ("weighting=fixed",)}
    assert METHOD_SETTINGS["podnet"].needs() == {"margin": ("hinge=true",)}
    with pytest.raises(SettingsError, match=r"wa.distillation_weight.*greater than or equal to 0"):
        load_settings("digits", ["method=wa", "wa.distillation_weight=-1"])


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


def test_a_setting_that_needs_any_of_several_has_an_effect_with_one_of_them() -> None:
    assert FosterSettings(align_exponent_base=2, align_student=True).without_effect() == {}
    needed = "alignment=weights or align_teacher=true or align_student=true"
    assert FosterSettings(align_exponent_base=2).without_effect() == {"align_exponent_base": needed}
