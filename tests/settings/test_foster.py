from pathlib import Path

import pytest

from foster.errors import FolderError, SettingsError
from foster.settings.base import filled
from foster.settings.experiment import Settings, load_settings
from foster.settings.foster import FosterSettings


def test_betas_from_0_to_1_are_taken_and_others_are_a_problem() -> None:
    for betas in (0.0, 1.0, (0.0, 1.0)):
        assert FosterSettings(beta_boost=betas).problem(3) is None
    for wrong in (-0.1, 1.1, (0.5, 1.1)):
        assert "each beta must lie in 0 <= beta <= 1" in str(FosterSettings(beta_boost=wrong).problem(3))


def test_probabilities_are_summed_only_where_the_network_is_compressed() -> None:
    assert FosterSettings(sums="probabilities").problem(3) is None
    assert str(FosterSettings(sums="probabilities", compression=False).problem(3)).startswith("foster.sums: ")


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
