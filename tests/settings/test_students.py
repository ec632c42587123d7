from pathlib import Path

import pytest

from foster.errors import FolderError, SettingsError
from foster.settings.base import check_used
from foster.settings.experiment import all_keys, load_settings, make_settings
from foster.settings.keys import filled
from foster.settings.methods import FosterSettings
from foster.settings.students import StudentSettings


def test_the_published_method_does_none_of_it() -> None:
    assert StudentSettings().model_dump() == {
        "compress_with": "balanced",
        "compress_cutmix": 0,
        "compress_start": 1,
        "compress_old_weight": 0,
        "first_branches": 1,
    }


def test_files_of_earlier_versions_are_read_unless_they_ask_for_what_is_gone(tmp_path: Path) -> None:
    gone = {"compress_mixup": 0.0, "compress_repeats": 1, "first_teachers": 0, "first_distil": {"epochs": 7}}
    saved = load_settings("digits").nested()
    saved["foster"] |= gone
    assert filled(saved, all_keys(), make_settings) == load_settings("digits")
    saved["foster"]["compress_repeats"] = 2
    with pytest.raises(FolderError, match=r"foster.compress_repeats = 2, but there is no such setting any more"):
        filled(saved, all_keys(), make_settings)
    file = tmp_path / "settings.toml"
    head = 'dataset = "digits"\naugmentation = "none"\nbase_classes = 2\nincrement = 2\nmemory_total = 20\n[foster]\n'
    file.write_text(f"{head}compress_mixup = 0.0\nfirst_distil = {{ epochs = 7 }}\n")
    assert load_settings(str(file)).options == FosterSettings()
    file.write_text(f"{head}compress_mixup = 0.5\n")
    with pytest.raises(SettingsError, match=r"unknown key 'foster.compress_mixup'"):
        load_settings(str(file))


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
