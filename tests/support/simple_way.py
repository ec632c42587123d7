"""What every learner must beat: a frozen pretrained backbone and the nearest class mean."""

from pathlib import Path

import torch

from foster.data.photos.decode import Resizing
from foster.data.photos.find import find_photos
from foster.data.photos.stack import read_photos
from foster.evaluation.predict import class_means, nearest_mean_scores
from foster.networks.adapted import choose_backbone


class NearestMeans:
    """The class means of the photos in `train`, which has a subfolder a class."""

    def __init__(self, train: Path, side: int) -> None:
        self._side = side
        self._backbone = choose_backbone("efficientnet_lite0", (side, side)).make().eval()
        self._names = find_photos(train).class_names
        self._means = class_means(*self._features_of(train), len(self._names))

    def accuracy(self, test: Path) -> float:
        """In percent, on photos of the same classes."""
        features, labels = self._features_of(test)
        return 100 * float((nearest_mean_scores(features, self._means).argmax(1) == labels).float().mean())

    @torch.no_grad()
    def _features_of(self, folder: Path) -> tuple[torch.Tensor, torch.Tensor]:
        read = read_photos(find_photos(folder), Resizing(self._side, self._side))
        parts = [self._backbone((part.float() / 255 - 0.5) / 0.5) for part in read.images.split(8)]
        return torch.cat(parts), torch.tensor([self._names.index(name) for name in read.labels])
