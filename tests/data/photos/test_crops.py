"""Crops of photos of many sizes against Pillow's own crop and resize."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from foster.data.photos.crops import centre_boxes, crops_of, random_boxes, whole_boxes
from foster.kernels.operations import crop_and_resize

SIZES = [(37, 80), (256, 341), (500, 375), (64, 64), (90, 700), (224, 224)]
OUT = (56, 48)


@pytest.fixture(scope="module")
def photos() -> list[Tensor]:
    chance = np.random.default_rng(0)
    found = []
    for height, width in SIZES:
        coarse = Image.fromarray(chance.integers(0, 256, (12, 12, 3), dtype=np.uint8)).resize((width, height))
        noisy = np.asarray(coarse).astype(int) + chance.integers(-30, 30, (height, width, 3))
        found.append(torch.from_numpy(noisy.clip(0, 255).astype(np.uint8)))
    return found


def by_pillow(photos: list[Tensor], boxes: Tensor, is_mirrored: Tensor, out_size: tuple[int, int]) -> Tensor:
    found = []
    for photo, (top, left, height, width), mirrored in zip(photos, boxes.tolist(), is_mirrored.tolist(), strict=True):
        image = Image.fromarray(photo.numpy()).crop((left, top, left + width, top + height))
        image = image.resize(out_size[::-1], Image.Resampling.BILINEAR)
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if mirrored else image
        found.append(torch.from_numpy(np.array(image)).permute(2, 0, 1))
    return torch.stack(found)


def boxes_of(kind: str) -> Tensor:
    sizes = torch.tensor(SIZES)
    if kind == "random":
        return random_boxes(sizes, (0.08, 1.0), torch.Generator().manual_seed(1))
    return centre_boxes(sizes) if kind == "centre" else whole_boxes(sizes)


@pytest.mark.parametrize("kind", ["random", "centre", "whole"])
def test_every_photo_is_cut_resized_and_mirrored_as_pillow_does_it(photos: list[Tensor], kind: str) -> None:
    boxes, is_mirrored = boxes_of(kind), torch.tensor([0, 1, 0, 1, 0, 1])
    ours, theirs = crops_of(photos, boxes, is_mirrored, OUT), by_pillow(photos, boxes, is_mirrored, OUT)
    difference = (ours.int() - theirs.int()).abs()
    assert difference.max() <= 1
    assert (difference > 0).float().mean() < 0.06


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("kind", ["random", "centre", "whole"])
@pytest.mark.parametrize("out_size", [OUT, (224, 224)])
def test_the_kernel_differs_from_pillow_by_rounding_alone(
    photos: list[Tensor], kind: str, out_size: tuple[int, int]
) -> None:
    boxes, is_mirrored = boxes_of(kind), torch.tensor([0, 1, 0, 1, 0, 1])
    held = [photo.cuda() for photo in photos]
    places = torch.tensor([photo.data_ptr() for photo in held])
    rows = torch.cat((torch.tensor(SIZES)[:, 1:], boxes, is_mirrored[:, None]), dim=1).to(torch.int32)
    found = crop_and_resize(places.cuda(), rows.cuda(), out_size).cpu()
    difference = (found.int() - by_pillow(photos, boxes, is_mirrored, out_size).int()).abs()
    assert difference.max() <= 1


def test_random_boxes_lie_in_their_own_photo_and_have_the_area_that_was_asked_for() -> None:
    sizes = torch.tensor([(300, 400), (400, 300), (500, 500)]).repeat(3000, 1)
    top, left, height, width = random_boxes(sizes, (0.25, 0.5), torch.Generator().manual_seed(0)).unbind(1)
    assert (top >= 0).all()
    assert (left >= 0).all()
    assert (top + height <= sizes[:, 0]).all()
    assert (left + width <= sizes[:, 1]).all()
    share = (height * width) / sizes.prod(1)
    assert share.min() > 0.24
    assert share.max() < 0.51
    assert abs(share.mean() - 0.375) < 0.01
    assert abs((width / height).log().mean()) < 0.01, "the logarithm of the aspect is uniform"
    down, right = top / (sizes[:, 0] - height), left / (sizes[:, 1] - width)
    assert (down.max(), right.max()) == (1, 1), "every place is possible"
    assert abs(torch.corrcoef(torch.stack((down, right)))[0, 1]) < 0.05


def test_a_photo_too_narrow_for_every_try_gives_the_largest_rectangle_in_its_middle() -> None:
    found = random_boxes(torch.tensor([(90, 700), (700, 90)]), (0.9, 1.0), torch.Generator().manual_seed(0))
    assert found.tolist() == [[0, 290, 90, 120], [290, 0, 120, 90]]


def test_the_square_in_the_middle_is_seven_eighths_of_the_shorter_side() -> None:
    sizes = torch.tensor([(256, 341), (256, 343), (512, 256)])
    assert centre_boxes(sizes)[:, :2].tolist() == [[16, 58], [16, 60], [144, 16]], "halves are rounded to even"
    assert (centre_boxes(sizes)[:, 2:] == 224).all()
