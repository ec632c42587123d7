"""What every learner must beat: a frozen pretrained backbone and the nearest class mean."""

from pathlib import Path

import torch

from foster.data.photos.read import read_photos
from foster.data.photos.resize import Resizing
from foster.data.photos.sources import find_photos
from foster.evaluation.predict import class_means, nearest_mean_scores
from foster.networks.adapted import choose_backbone


def nearest_mean_accuracy(train: Path, test: Path, side: int) -> float:
    """In percent, on the photos of `test`, with a subfolder a class in both."""
    choice = choose_backbone("efficientnet_lite0", (side, side))
    backbone = choice.make().eval()
    names = find_photos(train).class_names

    @torch.no_grad()
    def features_of(folder: Path) -> tuple[torch.Tensor, torch.Tensor]:
        read = read_photos(find_photos(folder), Resizing(side, side, "crop"))
        parts = [backbone((part.float() / 255 - 0.5) / 0.5) for part in read.images.split(8)]
        return torch.cat(parts), torch.tensor([names.index(name) for name in read.labels])

    features, labels = features_of(train)
    means = class_means(features, labels, len(names))
    found, expected = features_of(test)
    return 100 * float((nearest_mean_scores(found, means).argmax(1) == expected).float().mean())
