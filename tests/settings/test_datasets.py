"""The catalogue of datasets: its numbers, the tasks that they are cut into, and where files are looked for."""

from pathlib import Path

import pytest

from foster.settings.datasets import (
    DatasetSettings,
    PhotoSettings,
    SyntheticSettings,
    dataset_facts,
    task_sizes,
)


def test_the_data_folder_is_the_given_one_then_the_environments_then_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOSTER_DATA", "elsewhere")
    assert DatasetSettings(SyntheticSettings(), Path("here")).folder == Path("here")
    assert DatasetSettings(SyntheticSettings(), None).folder == Path("elsewhere")
    monkeypatch.delenv("FOSTER_DATA")
    assert DatasetSettings(SyntheticSettings(), None).folder == Path("data")


@pytest.mark.parametrize(
    ("num_classes", "base_classes", "increment", "sizes"),
    [
        (100, 0, 10, (10,) * 10),
        (100, 10, 10, (10,) * 10),
        (100, 50, 5, (50,) + (5,) * 10),
        (100, 50, 2, (50,) + (2,) * 25),
        (10, 0, 3, (3, 3, 3, 1)),
        (10, 4, 20, (4, 6)),
        (10, 10, 1, (10,)),
        (1, 0, 1, (1,)),
    ],
)
def test_task_sizes_follow_the_published_protocols(
    num_classes: int, base_classes: int, increment: int, sizes: tuple[int, ...]
) -> None:
    assert task_sizes(num_classes, base_classes, increment) == sizes


def test_no_file_is_looked_at_for_the_facts() -> None:
    nowhere = PhotoSettings(image_size=64)
    for name, num_classes in (("folder", 0), ("imagenet100", 100), ("imagenet1000", 1000)):
        facts = dataset_facts(name, DatasetSettings(data_dir=Path("/nowhere"), photos=nowhere))
        assert (facts.num_classes, facts.image_size, facts.is_complete) == (num_classes, 64, num_classes > 0)


def test_photos_are_kept_a_little_larger_than_they_are_seen_or_as_was_asked() -> None:
    assert PhotoSettings().kept_side == 256
    assert PhotoSettings(image_size=112).kept_side == 128
    assert PhotoSettings(short_side=300).kept_side == 300
    assert PhotoSettings(short_side=0).kept_side == 0
