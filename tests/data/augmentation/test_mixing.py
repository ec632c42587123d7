import torch

from foster.data.augmentation.mixing import cutmix

NUM_IMAGES, HEIGHT, WIDTH = 4000, 16, 12


def images() -> torch.Tensor:
    """Every image has one value of its own, so that each pixel tells where it came from."""
    return torch.arange(float(NUM_IMAGES))[:, None, None, None].expand(NUM_IMAGES, 3, HEIGHT, WIDTH)


def test_every_pixel_is_the_images_own_or_the_same_pixel_of_its_partner() -> None:
    torch.manual_seed(0)
    before = images() + torch.arange(float(WIDTH)) / WIDTH
    after = cutmix(before, 1.0)
    assert bool(((after == before) | (after == before.flip(0))).all())


def test_what_comes_from_the_partner_is_one_rectangle_in_all_channels() -> None:
    torch.manual_seed(0)
    is_inside = cutmix(images(), 1.0) != images()
    assert bool((is_inside == is_inside[:, :1]).all())
    rows, columns = is_inside[:, 0].any(2), is_inside[:, 0].any(1)
    assert bool((is_inside[:, 0] == rows[:, :, None] & columns[:, None, :]).all())
    for lines in (rows, columns):
        assert int((lines[:, 1:] & ~lines[:, :-1]).sum(1).max()) <= 1, "the lines of a rectangle are neighbours"


def test_about_the_wanted_share_of_the_images_is_changed() -> None:
    torch.manual_seed(0)
    for share in (0.0, 0.5, 1.0):
        is_changed = (cutmix(images(), share) != images()).flatten(1).any(1).float().mean()
        assert abs(float(is_changed) - share) < 0.03 + 0.03 * share  # a tiny rectangle may hold no pixel's centre


def test_areas_are_spread_over_all_sizes() -> None:
    torch.manual_seed(0)
    is_inside = (cutmix(images(), 1.0) != images())[:, 0].float()
    # Of a side s = sqrt(area), s - s^2 / 4 lies inside on average; its square has the mean 1/2 - 1/5 + 1/48.
    assert abs(float(is_inside.mean()) - 0.3208) < 0.02
    assert float(is_inside.mean((1, 2)).max()) > 0.8
    for across in (is_inside.mean((0, 1)), is_inside.mean((0, 2))):
        torch.testing.assert_close(across, across.flip(0), atol=0.025, rtol=0, msg="no side is nearer than another")
