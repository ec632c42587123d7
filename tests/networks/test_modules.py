"""Modules: a frozen one does not change in training, in any of its values, and leaves no gradients."""

from functools import partial

import pytest
import torch
from torch import nn

from foster.networks.modules import at_once, both, channels_last, evaluating, freeze, is_frozen, training_mode, unfreeze


def test_frozen_means_having_parameters_and_training_none() -> None:
    layer = nn.Linear(2, 2)
    assert not is_frozen(layer)
    layer.bias.requires_grad_(False)
    assert not is_frozen(layer)
    assert freeze(layer) is layer
    assert is_frozen(layer)
    assert not layer.training
    assert unfreeze(layer) is layer
    assert not is_frozen(layer)
    assert layer.training
    assert not is_frozen(nn.ReLU())


def test_training_mode_reaches_parts_without_parameters_inside_a_frozen_module() -> None:
    frozen = freeze(nn.Sequential(nn.Linear(2, 2), nn.Dropout(), nn.BatchNorm1d(2, affine=False)))
    network = nn.Sequential(frozen, nn.Dropout(), nn.Linear(2, 2))
    network.train()
    training_mode(network)
    assert [module.training for module in frozen.modules()] == [False] * 4
    assert network.training
    assert network[1].training
    assert network[2].training


def test_whoever_looks_at_a_network_leaves_every_part_in_its_mode() -> None:
    network = nn.Sequential(nn.BatchNorm1d(2), nn.Sequential(nn.Dropout(), nn.BatchNorm1d(2)))
    network[1].eval()
    with evaluating(network):
        assert not any(module.training for module in network.modules())
    assert [module.training for module in network.modules()] == [True, True, False, False, False]


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


def test_a_teacher_leaves_no_gradients_and_its_student_does() -> None:
    teacher, student, images = nn.Linear(3, 2), nn.Linear(3, 4), torch.randn(5, 3)
    old, new = both(teacher, student, images)
    torch.testing.assert_close(old, teacher(images).detach())
    torch.testing.assert_close(new, student(images))
    assert not old.requires_grad
    new.sum().backward()
    assert student.weight.grad is not None
    assert teacher.weight.grad is None


def test_gradients_reach_the_last_of_functions_that_run_at_once() -> None:
    layers, images = [nn.Linear(3, 2) for _ in range(3)], torch.randn(5, 3)
    results = at_once([partial(layer, images) for layer in layers])
    for layer, result in zip(layers, results, strict=True):
        torch.testing.assert_close(result, layer(images), atol=0, rtol=0)
    assert [result.requires_grad for result in results] == [False, False, True]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_recorded_graph_gives_both_results_again() -> None:
    teacher, student = nn.Linear(3, 2).cuda(), nn.Linear(3, 4).cuda()
    images = torch.randn(5, 3, device="cuda")
    with torch.no_grad():
        both(teacher, student, images)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            old, new = both(teacher, student, images)
        images.normal_()
        graph.replay()
        torch.testing.assert_close(old, teacher(images))
        torch.testing.assert_close(new, student(images))
