import torch
from torch import nn

from foster.networks.layout import channels_last


def test_weights_of_other_dimensions_and_tied_ones_stay_what_they_are() -> None:
    module = nn.Module()
    module.deep = nn.Conv3d(2, 3, 3)
    module.flat = module.again = nn.Conv2d(2, 3, 3)
    module.register_buffer("scale", torch.ones(1, 2, 3, 4, 5))
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    channels_last(module)
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    assert module.flat.weight is module.again.weight
    assert module.flat.weight.is_contiguous(memory_format=torch.channels_last)
    assert module.deep.weight.is_contiguous()
