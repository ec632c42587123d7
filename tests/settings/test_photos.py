"""How photos of many sizes are kept."""

import pytest

from foster.settings.photos import PhotoSettings


def test_photos_are_kept_a_little_larger_than_they_are_seen_or_as_was_asked() -> None:
    assert PhotoSettings().kept_side == 256
    assert PhotoSettings(image_size=112).kept_side == 128
    assert PhotoSettings(short_side=300).kept_side == 300
    assert PhotoSettings(short_side=0).kept_side == 0


def test_not_all_photos_can_be_test_photos() -> None:
    with pytest.raises(ValueError, match="less than 1"):
        PhotoSettings(test_share=1)
