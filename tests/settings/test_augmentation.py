"""Augmentations by name and by parts, and one that hides the whole image."""

from pathlib import Path

import pytest

from foster.errors import SettingsError
from foster.settings.augmentation import AUGMENTATIONS, Augmentation
from foster.settings.experiment import load_settings


def test_the_published_augmentation_follows_the_method_and_a_name_or_a_whole_table_replaces_it() -> None:
    assert load_settings("cifar100-b0-inc10", ["method=replay"]).augmentation == "plain"
    of_photos = [load_settings("imagenet100-b0-inc10", [f"method={name}"]).augmentation for name in ("foster", "wa")]
    assert of_photos == ["photo-auto", "imagenet100"]
    assert load_settings("imagenet1000-b0-inc100", ["method=wa"]).augmentation == "imagenet"
    named = load_settings("cifar100-b0-inc10", ["augmentation=plain"])
    assert named.augmentation_settings == AUGMENTATIONS["plain"]
    table = load_settings("digits", ["augmentation={flip=true, cutout=2}"])
    assert table.augmentation_settings == Augmentation(flip=True, cutout=2)
    assert table.augmentation_name == "custom"


@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        (["augmentation.flip=false"], "auto"),
        (["augmentation.flip=false", "method=wa"], "plain"),
        (["augmentation=photo", "augmentation.flip=false"], "photo"),
        (["augmentation.flip=false", "augmentation=photo"], "photo"),
        (["augmentation=published", "augmentation.flip=false"], "auto"),
    ],
)
def test_a_part_changes_the_augmentation_that_is_named_or_published(
    overrides: list[str], name: str, tmp_path: Path
) -> None:
    settings = load_settings("cifar100-b0-inc10", overrides)
    assert settings.augmentation_settings == AUGMENTATIONS[name].model_copy(update={"flip": False})
    (tmp_path / "settings.toml").write_text(settings.toml(), encoding="utf-8")
    again = load_settings(str(tmp_path), ["augmentation.cutout=4"])
    expected = AUGMENTATIONS[name].model_copy(update={"flip": False, "cutout": 4})
    assert again.augmentation_settings == expected, "over a table as well"


def test_a_hole_that_hides_the_whole_image_is_refused(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text('dataset = "digits"\nincrement = 5\nmemory_total = 200\n')
    with pytest.raises(SettingsError, match=r"16 x 16.*8 x 8"):
        load_settings(str(mine))
    assert load_settings(str(mine), ["augmentation.cutout=8"]).augmentation_settings.cutout == 8
    assert load_settings(str(mine), ["method=replay"]).augmentation == "plain"
    with pytest.raises(SettingsError, match=r"augmentation\.cutout: .*multiple of 2, not 5"):
        load_settings(str(mine), ["augmentation.cutout=5"])
