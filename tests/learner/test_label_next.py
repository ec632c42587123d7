from pathlib import Path

import pytest
import torch
from PIL import Image, UnidentifiedImageError
from servers import photo

import foster
from foster.data.photos.decode import REASONS
from foster.errors import DataError
from foster.learner.label_next import doubtful_and_different, label_next


def test_of_alike_photos_one_is_chosen_before_the_next_kind() -> None:
    doubt = torch.tensor([0.9, 0.89, 0.88, 0.5, 0.1])
    features = torch.tensor([[1.0, 0.0], [9.0, 0.009], [1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])  # of any length
    assert doubtful_and_different(doubt, features, 2) == [0, 3]
    assert doubtful_and_different(doubt, features, 3) == [0, 3, 4]
    assert sorted(doubtful_and_different(doubt, features, 99)) == [0, 1, 2, 3, 4]


def test_where_the_network_is_sure_of_all_the_most_different_are_chosen() -> None:
    features = torch.tensor([[1.0, 0.0], [1.0, 0.01], [1.0, 0.02], [0.0, 1.0]])
    assert doubtful_and_different(torch.zeros(4), features, 2) == [1, 3]
    assert doubtful_and_different(torch.zeros(0), torch.zeros(0, 2), 2) == []


def test_copies_fill_up_only_what_nothing_else_can() -> None:
    features = torch.tensor([[1.0, 0.0]] * 5 + [[0.0, 1.0]])
    assert doubtful_and_different(torch.linspace(1, 0.5, 6), features, 3) == [0, 1, 5]


def test_an_outlier_is_not_preferred_to_many_that_are_alike() -> None:
    chance = torch.Generator().manual_seed(0)
    crowds = [torch.randn(9, 8, generator=chance) * 0.05 + torch.eye(8)[k] for k in range(2)]
    outlier = -torch.ones(1, 8)
    chosen = doubtful_and_different(torch.full((19,), 0.5), torch.cat([*crowds, outlier]), 2)
    assert sorted(position // 9 for position in chosen) == [0, 1]


def test_of_more_photos_than_can_be_clustered_the_most_doubtful_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foster.learner.label_next.MOST_CLUSTERED", 3)
    doubt = torch.tensor([0.2, 0.9, 0.2, 0.8, 0.7, 0.2])
    features = torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0], [1.0, 0.1], [1.0, 0.2], [0.0, 1.0]])
    assert set(doubtful_and_different(doubt, features, 2)) <= {1, 3, 4}


def test_photos_are_chosen_by_what_the_learner_says_of_them(small_bundle: Path, tmp_path: Path) -> None:
    learner = foster.load(small_bundle, device="cpu")
    for k in range(12):
        (tmp_path / f"{k}.png").write_bytes(photo(k))
    (tmp_path / "broken.png").write_bytes(b"none")
    Image.new("RGB", (8, 8)).save(tmp_path / "copy a.png")
    Image.new("RGB", (8, 8)).save(tmp_path / "copy b.png")
    files = sorted(tmp_path.iterdir())
    found = label_next(learner, files, 5)
    assert len(found.chosen) == 5
    assert [entry.reason for entry in found.unreadable] == [REASONS[UnidentifiedImageError]]
    every = {
        Path(entry.name): entry for entry in learner.predict([file for file in files if "broken" not in file.name])
    }
    for entry in found.chosen:
        best, second = every[entry.path].top
        assert entry.label == best.label
        assert entry.doubt == pytest.approx(1 - best.probability + second.probability, abs=1e-4)
    doubts = [entry.doubt for entry in found.chosen]
    assert doubts == sorted(doubts, reverse=True)
    assert {"copy a.png", "copy b.png"} - {entry.path.name for entry in found.chosen}, "never both"
    with pytest.raises(DataError, match="no image"):
        label_next(learner, [tmp_path / "broken.png"], 5)
