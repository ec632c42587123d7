"""Two computations of one step: the first leaves no gradients, and each sees the same images."""

import pytest
import torch
from torch import nn

from foster.networks.streams import both


def test_a_teacher_leaves_no_gradients_and_its_student_does() -> None:
    teacher, student, images = nn.Linear(3, 2), nn.Linear(3, 4), torch.randn(5, 3)
    old, new = both(teacher, student, images)
    torch.testing.assert_close(old, teacher(images).detach())
    torch.testing.assert_close(new, student(images))
    assert not old.requires_grad
    new.sum().backward()
    assert student.weight.grad is not None
    assert teacher.weight.grad is None


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
