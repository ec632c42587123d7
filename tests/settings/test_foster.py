from pathlib import Path

import pytest

from foster.errors import FolderError, SettingsError
from foster.settings.base import filled
from foster.settings.experiment import Settings, load_settings
from foster.settings.foster import FosterSettings


def test_the_published_method_changes_nothing_of_its_student() -> None:
    usual = {"compress_with": "balanced", "compress_cutmix": 0, "compress_start": "auto", "compress_old_weight": 0}
    assert FosterSettings().model_dump(include=set(usual)) == usual
    assert FosterSettings().start_of_compression == 1


def test_files_of_earlier_versions_are_read_unless_they_ask_for_what_is_gone(tmp_path: Path) -> None:
    gone = {"compress_mixup": 0.0, "compress_repeats": 1, "first_branches": 1, "first_distil": {"epochs": 7}}
    saved = load_settings("digits").nested()
    saved["foster"] |= gone
    assert filled(Settings, saved) == load_settings("digits")
    saved["foster"]["compress_repeats"] = 2
    with pytest.raises(FolderError, match=r"foster.compress_repeats = 2, but there is no such setting any more"):
        filled(Settings, saved)
    file = tmp_path / "settings.toml"
    head = 'dataset = "digits"\naugmentation = "none"\nbase_classes = 2\nincrement = 2\nmemory_total = 20\n[foster]\n'
    file.write_text(f"{head}compress_mixup = 0.0\nfirst_distil = {{ epochs = 7 }}\n")
    assert load_settings(str(file)).options == FosterSettings()
    file.write_text(f"{head}compress_mixup = 0.5\n")
    with pytest.raises(SettingsError, match=r"unknown key 'foster.compress_mixup'"):
        load_settings(str(file))
