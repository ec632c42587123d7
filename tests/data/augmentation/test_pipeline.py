import pytest
import torch
from pillow_images import augment, photo_tiles
from torch import Tensor

from foster.data.augmentation import pipeline as augmentation
from foster.data.augmentation.pipeline import PhotoChanges
from foster.data.photos.crops import random_boxes, whole_boxes
from foster.networks.modules import Normaliser
from foster.settings.augmentation import AUGMENTATIONS, Augmentation

NUM_DRAWS = 20_000


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def numbered_pixels(size: int) -> Tensor:
    """One image `[3, size, size]` whose red is the row and green the column, counted from 1; blue is 255."""
    rows = torch.arange(1, size + 1).view(-1, 1).expand(size, size)
    return torch.stack((rows, rows.T, torch.full((size, size), 255))).to(torch.uint8)


def assert_uniform(values: Tensor, num_values: int) -> None:
    """Chi-squared of counts over 0 .. num_values - 1, within five standard deviations."""
    assert int(values.min()) >= 0
    counts = torch.bincount(values, minlength=num_values).double()
    assert len(counts) == num_values
    expected = len(values) / num_values
    statistic = float(((counts - expected) ** 2 / expected).sum())
    freedom = num_values - 1
    assert statistic < freedom + 5 * (2 * freedom) ** 0.5


def assert_half(count: int, total: int) -> None:
    assert abs(count - total / 2) < 5 * (total / 4) ** 0.5


@pytest.mark.parametrize("name", AUGMENTATIONS)
@pytest.mark.parametrize("shape", [(0, 3, 32, 32), (1, 3, 8, 8), (5, 3, 20, 33), (3, 3, 1, 2)], ids=str)
def test_any_number_of_images_of_any_size_can_be_augmented(name: str, shape: tuple[int, ...]) -> None:
    images = torch.randint(256, shape, generator=seeded(), dtype=torch.uint8)
    original = images.clone()
    result = augment(images, AUGMENTATIONS[name], seeded())
    assert (result.shape, result.dtype) == (images.shape, torch.uint8)
    assert torch.equal(images, original), "the input was written to"


@pytest.mark.parametrize("name", ["auto", "photo-auto"])
@pytest.mark.parametrize("chunk", [7])
def test_the_chunk_size_does_not_change_the_result(name: str, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    images = photo_tiles(16, 24, 50)
    whole = augment(images, AUGMENTATIONS[name], seeded())
    monkeypatch.setitem(augmentation.CHUNK_PIXELS, "cpu", chunk * 16 * 24)
    assert torch.equal(augment(images, AUGMENTATIONS[name], seeded()), whole)


def test_no_augmentation_changes_nothing_and_draws_nothing() -> None:
    images, generator = photo_tiles(32, 32, 4), seeded()
    assert torch.equal(augment(images, AUGMENTATIONS["none"], generator), images)
    assert torch.equal(generator.get_state(), seeded().get_state())


def test_the_named_augmentations_are_the_published_ones() -> None:
    plain = Augmentation(crop_padding=4, flip=True, brightness=63 / 255)
    assert AUGMENTATIONS["plain"] == plain
    assert AUGMENTATIONS["auto"] == plain.model_copy(update={"policy": "cifar10", "cutout": 16})
    assert AUGMENTATIONS["photo-auto"] == Augmentation(
        resized_crop=(0.08, 1.0), flip=True, brightness=63 / 255, policy="imagenet"
    )
    assert AUGMENTATIONS["imagenet"] == AUGMENTATIONS["photo-auto"].model_copy(update={"policy": "none"})
    assert AUGMENTATIONS["imagenet100"] == Augmentation(resized_crop=(0.08, 1.0), flip=True)


def test_images_are_cropped_then_brightened_then_changed_by_the_policy_then_cut_out() -> None:
    """One kind of change after the other, from one generator, gives what all of them at once give."""
    parts = [
        Augmentation(crop_padding=4, flip=True),
        Augmentation(brightness=63 / 255),
        Augmentation(policy="cifar10"),
        Augmentation(cutout=16),
    ]
    images, generator = photo_tiles(32, 32, 64), seeded()
    for part in parts:
        images = augment(images, part, generator)
    assert torch.equal(augment(photo_tiles(32, 32, 64), AUGMENTATIONS["auto"], seeded()), images)


@pytest.mark.parametrize("padding", [1, 4])
def test_every_crop_offset_is_equally_likely(padding: int) -> None:
    size, middle = 10, 5
    images = numbered_pixels(size).expand(NUM_DRAWS, 3, size, size)
    result = augment(images, Augmentation(crop_padding=padding), seeded())
    # The middle pixel always comes from inside the image and tells where the window was.
    row, column = (result[:, channel, middle, middle].long() - 1 - middle + padding for channel in (0, 1))
    assert_uniform(row * (2 * padding + 1) + column, (2 * padding + 1) ** 2)


def test_half_of_the_images_are_mirrored_and_the_others_left_alone() -> None:
    image = photo_tiles(8, 8, 1)[0]
    result = augment(image.expand(2000, 3, 8, 8), Augmentation(flip=True), seeded())
    is_mirrored = (result == image.flip(2)).flatten(1).all(1)
    is_same = (result == image).flatten(1).all(1)
    assert bool((is_mirrored ^ is_same).all())
    assert_half(int(is_mirrored.sum()), 2000)


@pytest.mark.parametrize(("strength", "low", "high"), [(63 / 255, 192 / 255, 318 / 255), (1.0, 0.0, 2.0)])
def test_brightness_factors_are_uniform_around_one(strength: float, low: float, high: float) -> None:
    images = torch.tensor([100, 50, 0], dtype=torch.uint8).view(1, 3, 1, 1).expand(NUM_DRAWS, 3, 2, 2)
    result = augment(images, Augmentation(brightness=strength), seeded())
    assert bool((result == result[:, :, :1, :1]).all()), "one factor for a whole image"
    red, green, blue = result[:, :, 0, 0].long().unbind(1)
    assert int(blue.max()) == 0
    assert bool((red // 2 == green).all()), "100 f and 50 f, cut off"
    assert low * 100 - 1 <= int(red.min()) <= low * 100 + 1
    assert high * 100 - 1 <= int(red.max()) <= high * 100
    whole = (red >= round(low * 100) + 1) & (red < int(high * 100))  # the outermost values are rarer
    assert_uniform(red[whole] - (round(low * 100) + 1), int(high * 100) - round(low * 100) - 1)


def test_cutout_blackens_a_square_with_its_centre_anywhere() -> None:
    height, width, side = 8, 12, 4
    images = torch.full((NUM_DRAWS, 3, height, width), 9, dtype=torch.uint8)
    result = augment(images, Augmentation(cutout=side), seeded())
    assert bool(((result == 0) | (result == 9)).all())
    is_black = result[:, 0] == 0
    assert torch.equal(is_black.unsqueeze(1).expand_as(result), result == 0)
    rows, columns = is_black.any(2), is_black.any(1)
    assert torch.equal(is_black, rows.unsqueeze(2) & columns.unsqueeze(1)), "a rectangle"
    centres = []
    for lines, size in ((rows, height), (columns, width)):
        first, length = lines.int().argmax(1), lines.sum(1)
        # Cut at the near border only if it starts there; at the far border the start alone tells the centre.
        centre = torch.where(first > 0, first + side // 2, length - side // 2)
        expected = torch.minimum(centre + side // 2, torch.tensor(size)) - (centre - side // 2).clamp(min=0)
        assert torch.equal(length, expected)
        centres.append(centre)
    assert_uniform(centres[0], height)
    assert_uniform(centres[1], width)
    assert_uniform(centres[0] * width + centres[1], height * width)


@pytest.mark.parametrize(
    ("size", "box"), [((32, 32), (0, 0, 32, 32)), ((10, 40), (0, 13, 10, 13)), ((60, 12), (22, 0, 16, 12))]
)
def test_where_no_crop_fits_it_is_the_largest_in_the_middle(size: tuple[int, int], box: tuple[int, ...]) -> None:
    boxes = random_boxes(torch.tensor([size]).expand(50, 2), (2.0, 2.0), seeded())
    assert boxes.tolist() == [list(box)] * 50


def test_a_resized_crop_takes_the_place_of_the_crop_of_photos_as_well() -> None:
    images, sizes = photo_tiles(8, 8, 4), torch.tensor([[30, 40]]).expand(4, 2)
    padded = Augmentation(crop_padding=2)
    cropped = PhotoChanges(padded.model_copy(update={"resized_crop": (0.08, 1.0)}), sizes, images.shape, seeded())
    assert cropped.done_to_all(images) is images
    assert PhotoChanges(padded, sizes, images.shape, seeded()).done_to_all(images) is not images
    assert torch.equal(augment(images, padded.model_copy(update={"resized_crop": (1.0, 1.0)}), seeded()), images)
    whole = PhotoChanges(padded, sizes, images.shape, seeded(), whole_boxes).boxes
    assert torch.equal(whole, whole_boxes(sizes)), "the rectangles of inference"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_normalised_images_have_the_mean_taken_off_and_the_deviation_divided_out(dtype: torch.dtype) -> None:
    images = photo_tiles(32, 32, 10)
    mean, std = (0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)
    result = Normaliser(mean, std, torch.device("cpu"))(images, dtype)
    means, stds = (torch.tensor(values, dtype=torch.float64).view(3, 1, 1) for values in (mean, std))
    expected = (images.double() / 255 - means) / stds
    assert result.dtype == dtype
    assert result.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(result, expected.to(dtype))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_a_gpu_gives_the_images_of_the_cpu_and_is_never_waited_for(name: str) -> None:
    images = photo_tiles(32, 32, 500)
    on_device = images.cuda()
    augment(on_device, AUGMENTATIONS[name], seeded())
    torch.cuda.set_sync_debug_mode("error")
    try:
        result = augment(on_device, AUGMENTATIONS[name], seeded())
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.equal(result.cpu(), augment(images, AUGMENTATIONS[name], seeded()))
