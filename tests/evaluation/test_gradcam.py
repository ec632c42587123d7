import torch
from torch import Tensor

from foster.evaluation.gradcam import grad_cam
from foster.networks.heads import Head
from foster.networks.network import Backbone, Network


class Channels(Backbone):
    """Its maps are the image's channels at half the size, so that all can be worked out by hand."""

    feature_size = 3

    def stages(self, images: Tensor) -> list[Tensor]:
        return [torch.nn.functional.avg_pool2d(images, 2)]


def red_against_green() -> Network:
    """Class 0 is what red says, class 1 what green says and red denies."""
    weight = torch.tensor([[1.0, 0.0, 0.0], [-1.0, 1.0, 0.0]])
    return Network([Channels()], Head.from_values(weight, torch.zeros(2)))


def image_with(red: slice, green: slice) -> Tensor:
    image = torch.zeros(1, 3, 8, 8)
    image[:, 0, :, red] = 1
    image[:, 1, :, green] = 1
    return image


def test_the_map_is_bright_where_the_class_is_seen_and_dark_where_it_is_denied() -> None:
    image = image_with(slice(0, 4), slice(4, 8))
    images = torch.cat([image, image / 4])  # each has a map of its own scale
    red, green = grad_cam(red_against_green(), images, torch.tensor([0, 1]))
    assert red.shape == (8, 8)
    torch.testing.assert_close(red.max(), torch.tensor(1.0))
    # A place of the map covers two pixels, whose middle is its own.
    torch.testing.assert_close(red[4], torch.tensor([1, 1, 1, 0.75, 0.25, 0, 0, 0]))
    assert green[:, 5:].min() > 0.9
    assert green[:, :4].max() == 0  # denied, and not only absent


def test_a_class_that_nothing_speaks_for_has_a_dark_map_without_nan() -> None:
    (heat,) = grad_cam(red_against_green(), image_with(slice(0, 8), slice(0, 0)), torch.tensor([1]))
    assert torch.equal(heat, torch.zeros(8, 8))


def test_all_branches_and_other_scores_take_part_and_no_gradient_is_left_behind() -> None:
    weight = torch.tensor([[1.0, 0.0, 0.0, 0.0, 1.0, 0.0]])
    network = Network([Channels(), Channels()], Head.from_values(weight, torch.zeros(1)))
    image = image_with(slice(0, 4), slice(4, 8))
    (both,) = grad_cam(network, image, torch.tensor([0]))
    assert both.min() > 0.9
    (first,) = grad_cam(network, image, torch.tensor([0]), scores=lambda features: features[:, :1])
    assert first[:, 5:].max() < 0.1
    assert all(parameter.grad is None for parameter in network.parameters())
    with torch.no_grad():  # also where somebody else has switched gradients off
        torch.testing.assert_close(grad_cam(network, image, torch.tensor([0]))[0], both)
