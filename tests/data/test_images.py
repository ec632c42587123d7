"""ImageSet keeps images, labels and class names together through every verb."""

import pytest
import torch

from foster.data.images import ImageSet, TensorStack, concatenate, images_digest
from foster.data.photos.decode import Resizing
from foster.data.photos.reading import learner_loader
from foster.data.photos.stack import PhotoStack


def coloured(labels: list[int], names: tuple[str, ...] = ("ant", "bee", "cat")) -> ImageSet:
    """One 2 x 2 image per label; image k has the value k everywhere, so that it can be recognised."""
    images = torch.arange(len(labels), dtype=torch.uint8).reshape(-1, 1, 1, 1).repeat(1, 3, 2, 2)
    return ImageSet(images, torch.tensor(labels, dtype=torch.int64), names)


def values(images: ImageSet) -> list[int]:
    return images.images[:, 0, 0, 0].tolist()


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (torch.zeros(2, 3, 4, 4), torch.zeros(2, dtype=torch.int64), "uint8"),
        (torch.zeros(2, 1, 4, 4, dtype=torch.uint8), torch.zeros(2, dtype=torch.int64), r"\(2, 1, 4, 4\)"),
        (torch.zeros(2, 3, 4, 4, dtype=torch.uint8), torch.zeros(3, dtype=torch.int64), "2 images but labels"),
        (torch.zeros(2, 3, 4, 4, dtype=torch.uint8), torch.zeros(2), "int64"),
    ],
)
def test_tensors_of_another_type_or_shape_are_refused(images: torch.Tensor, labels: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ImageSet(images, labels, ("ant",))


def test_arrays_and_lists_of_names_are_as_good_as_tensors_and_tuples() -> None:
    pixels, labels = torch.arange(96, dtype=torch.uint8).view(2, 3, 4, 4), torch.tensor([1, 0])
    found = ImageSet(pixels.numpy(), labels.numpy(), ["ant", "bee"])
    expected = ImageSet(pixels, labels, ("ant", "bee"))
    assert torch.equal(found.images, expected.images)
    assert torch.equal(found.labels, expected.labels)
    assert found.class_names == expected.class_names


@pytest.mark.parametrize(("channels", "advice"), [(3, "255"), (1, "expand")])
def test_the_advice_for_images_of_another_kind_makes_them_right(channels: int, advice: str) -> None:
    images = torch.rand(2, channels, 4, 4, generator=torch.Generator().manual_seed(1))
    with pytest.raises(ValueError, match=advice):
        ImageSet(images, torch.zeros(2, dtype=torch.int64), ("ant",))
    images = images.expand(-1, 3, -1, -1)
    found = ImageSet((255 * images).round().byte(), torch.zeros(2, dtype=torch.int64), ("ant",)).images
    assert (found / 255 - images).abs().max() < 0.003


def test_select_takes_positions_in_the_given_order_or_a_mask() -> None:
    images = coloured([0, 1, 2, 1])
    assert values(images.select(torch.tensor([3, 0]))) == [3, 0]
    assert images.select(torch.tensor([3, 0])).labels.tolist() == [1, 0]
    assert values(images.select(torch.tensor([False, True, True, False]))) == [1, 2]


def test_of_classes_includes_the_first_id_and_excludes_the_last() -> None:
    images = coloured([2, 0, 1, 2, 1, -1])
    assert values(images.of_classes(1, 2)) == [2, 4]
    assert values(images.of_classes(0, 3)) == [0, 1, 2, 3, 4]
    assert values(images.of_classes(1, 1)) == []


def test_class_counts_have_one_entry_per_class() -> None:
    assert coloured([1, 0, 1]).class_counts().tolist() == [1, 2, 0]


def test_a_class_order_renumbers_labels_and_names_alike_and_copies_no_image() -> None:
    images = coloured([0, 1, 2, 2])
    ordered = images.with_class_order([2, 0, 1])
    assert ordered.labels.tolist() == [1, 2, 0, 0]
    assert ordered.class_names == ("cat", "ant", "bee")
    assert ordered.images.data_ptr() == images.images.data_ptr()
    assert images.labels.tolist() == [0, 1, 2, 2]


def test_concatenation_keeps_the_order_and_the_longer_list_of_names() -> None:
    old = coloured([0, 1], names=("ant", "bee"))
    new = coloured([2, 2, 2])
    both = concatenate(new, old)
    assert both.labels.tolist() == [2, 2, 2, 0, 1]
    assert values(both) == [0, 1, 2, 0, 1]
    assert both.class_names == ("ant", "bee", "cat")


def test_sets_that_mean_different_classes_by_one_id_cannot_be_concatenated() -> None:
    with pytest.raises(ValueError, match="different classes"):
        concatenate(coloured([0]), coloured([0], names=("ant", "dog")))


@pytest.mark.parametrize(("count", "is_resident"), [(25, True), (26, False)])
def test_images_live_on_a_gpu_where_an_epoch_takes_at_most_half_of_what_is_free(
    count: int, is_resident: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """8,000 bytes are free, and torch holds 1,600 that it does not use."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (8_000, 10_000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 3_000)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 1_400)
    stack = TensorStack(torch.zeros(count, 3, 4, 4, dtype=torch.uint8))
    assert stack.is_resident(torch.device("cuda", 0), "auto") is is_resident
    assert stack.is_resident(torch.device("cpu"), "auto")


def images_of(*values: int, labels: tuple[int, ...] | None = None) -> ImageSet:
    pixels = torch.tensor(values, dtype=torch.uint8).view(-1, 1, 1, 1).expand(-1, 3, 2, 2)
    return ImageSet(pixels.contiguous(), torch.tensor(labels or range(len(values))), ())


def test_a_digest_depends_on_pixels_labels_and_order_and_not_on_the_layout() -> None:
    plain = images_of(1, 2, 3)
    assert images_digest(None) == ""
    spread = ImageSet(plain.images.contiguous(memory_format=torch.channels_last), plain.labels, ())
    assert images_digest(spread) == images_digest(plain)
    others = (images_of(1, 2, 4), images_of(2, 1, 3), images_of(1, 2, 3, labels=(0, 0, 1)), images_of(1, 2))
    photos = ImageSet(PhotoStack.of([], learner_loader(Resizing(96, 96))), torch.empty(0, dtype=torch.int64), ())
    wide = torch.zeros(2, 3, 2, 8, dtype=torch.uint8)
    shapes = (ImageSet(pixels, torch.arange(2), ()) for pixels in (wide, wide.view(2, 3, 4, 4)))
    assert len({images_digest(images) for images in (plain, *others, photos, *shapes)}) == 8
