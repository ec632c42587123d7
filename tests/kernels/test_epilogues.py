"""What a kernel is told of the steps that it takes along."""

import torch

from foster.kernels.epilogues import NOTHING_ADDED, Added, Epilogue, Gate, Norm, empty_maps


def test_what_is_not_done_is_left_out_of_the_kernel() -> None:
    assert Epilogue().arguments(None) == (None, None, None, None, 0.0, None, None, None, None)
    assert Epilogue().options() == {"is_rectified": False, **NOTHING_ADDED}


def test_every_step_hands_over_its_tensors_in_the_kernels_order() -> None:
    gamma, beta, mean, var, maps, behind, coefficients, partials = (torch.full((1,), float(k)) for k in range(8))
    shortcut = maps.view(1, 1, 1, 1).expand(2, 3, 5, 7)
    epilogue = Epilogue(
        Norm(gamma, beta, mean, var, 0.1, 1e-5), Added(shortcut, down=2), True, Gate(behind, coefficients)
    )
    expected = (gamma, beta, mean, var, 1e-5, shortcut, behind, coefficients, partials)
    assert all(found is wanted for found, wanted in zip(epilogue.arguments(partials), expected, strict=True))
    assert epilogue.options() == {
        "is_rectified": True,
        "added_channels": 3,
        "added_height": 5,
        "added_width": 7,
        "added_down": 2,
        "added_up": 1,
    }
    assert epilogue.options().keys() == Epilogue().options().keys()


def test_room_for_maps_is_bfloat16_and_channels_last() -> None:
    maps = empty_maps(torch.zeros(4, 1), 16, 3, 5)
    assert (maps.shape, maps.dtype) == ((4, 16, 3, 5), torch.bfloat16)
    assert maps.is_contiguous(memory_format=torch.channels_last)
