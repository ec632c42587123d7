"""PODNet: pooled maps that stay, proxies that start at clusters, and a head tuned on balanced images."""

import math

import pytest
import torch
from small_course import (
    SHORT,
    changed,
    digits,
    learn,
    new_method,
    normalised,
    task_of,
    terms,
    train,
    values,
)
from torch import Tensor
from torch.nn import functional

from foster.data.herding import herding_by_class
from foster.data.memory import ExemplarMemory
from foster.data.task import Task
from foster.losses import local_similarity, pod_flat, pod_spatial, proxy_nca
from foster.methods.cosine import cosine_head
from foster.methods.podnet import Podnet, clusters
from foster.networks.heads import CosineHead
from foster.networks.modules import is_frozen
from foster.networks.network import Backbone
from foster.settings.methods import PodnetSettings
from foster.training.phase import Evaluate, Phase


def podnet(memory: ExemplarMemory | None = None, **options: bool) -> Podnet:
    settings = PodnetSettings(first=SHORT, later=SHORT, finetune=SHORT, num_proxies=3, **options)
    method = new_method(Podnet, settings, memory)
    assert isinstance(method, Podnet)
    return method


def phases_before_training(method: Podnet, task: Task) -> list[Phase]:
    return [phase for phase in method.phases(task) if not isinstance(phase, Evaluate)]


def test_learning_trains_features_and_new_proxies_and_keeps_known_ones() -> None:
    method = podnet()
    learn(method, 1)
    task = task_of(method, 1)
    phase = next(iter(method.phases(task)))
    assert isinstance(phase, Phase)
    before = values(method.network)
    train(phase, task)
    found = changed(before, method.network)
    assert {"branches.0.stem.0.weight", "branches.0.stem.1.running_mean", "head.new_proxies", "head.scale"} <= found
    assert "head.old_proxies" not in found


def test_tuning_trains_all_of_the_head_and_nothing_else() -> None:
    method = podnet()
    learn(method, 1)
    task = task_of(method, 1)
    learning, tuning = phases_before_training(method, task)
    assert (learning.name, tuning.name) == ("learn", "finetune")
    before = values(method.network)
    train(tuning, task)
    assert changed(before, method.network) == {"head.old_proxies", "head.new_proxies", "head.scale"}
    # The next task trains everything but the known proxies again.
    next(iter(method.phases(task_of(method, 2))))
    assert not is_frozen(method.network.branches[0])
    assert not cosine_head(method.network).old_proxies.requires_grad


@pytest.mark.parametrize("memory", [ExemplarMemory(per_class=6), ExemplarMemory(total=30)], ids=["per class", "total"])
def test_the_head_is_tuned_on_equally_many_images_of_each_class(memory: ExemplarMemory) -> None:
    method = podnet(memory)
    learn(method, 2)
    num_kept = method.memory.counts[0].item()
    task = task_of(method, 2)
    tuning = phases_before_training(method, task)[1]
    assert tuning.data.class_counts().tolist() == [num_kept] * 9
    assert task.exemplars is not None
    uneven = task.exemplars.select(task.exemplars.labels != 0)
    assert method.balanced(task, uneven).class_counts().tolist() == [0, *[num_kept] * 8]
    for class_id in range(6):
        images = tuning.data.of_classes(class_id, class_id + 1).images
        kept = memory.stack_of(class_id).tensor
        assert torch.equal(images[: len(kept)], kept)
    features = method.context.infer(method.network, digits()[2].new_images.images).features
    for class_id, herded in enumerate(herding_by_class(features, digits()[2].new_images.labels, [6, 7, 8], num_kept)):
        found = tuning.data.of_classes(6 + class_id, 7 + class_id).images
        assert torch.equal(found, digits()[2].new_images.images[herded])


def test_pooled_maps_are_compared_with_the_old_networks_by_the_weight_of_the_growth() -> None:
    method = podnet()
    learn(method, 1)
    teacher, task = method.network, task_of(method, 1)
    phase = next(iter(method.phases(task)))
    assert isinstance(phase, Phase)
    assert is_frozen(teacher)
    same = terms(phase, task)
    assert same["L_spatial"] == pytest.approx(0, abs=1e-5)
    assert same["L_flat"] == pytest.approx(0, abs=1e-5)
    train(phase, task)
    found = terms(phase, task)
    images = normalised(task.training.images)
    student, old = method.network.branches[0].eval(), teacher.branches[0].eval()
    assert isinstance(student, Backbone)
    assert isinstance(old, Backbone)
    with torch.no_grad():
        maps, old_maps = student.stages(images), old.stages(images)
        growth = math.sqrt(6 / 2)
        assert found["L_spatial"] == pytest.approx(growth * 5 * pod_spatial(maps, old_maps).item(), rel=1e-4)
        flat = pod_flat(maps[-1].mean((2, 3)), old_maps[-1].mean((2, 3)))
        assert found["L_flat"] == pytest.approx(growth * flat.item(), rel=1e-4)
    assert found["L_spatial"] > 0.01


def test_without_the_hinge_the_loss_is_the_toolkits() -> None:
    logits, labels = torch.tensor([[9.0, 0.0]]), torch.tensor([0])
    head = CosineHead(4, 2)
    assert podnet().classification(logits, labels, head).item() == proxy_nca(logits, labels).item() > 0
    assert podnet(hinge=True).classification(logits, labels, head).item() == 0


def test_the_first_task_and_the_tuning_have_the_loss_of_the_proxies_alone() -> None:
    method = podnet()
    for index, name in enumerate(("learn", "finetune")):
        task = task_of(method, index)
        phase = phases_before_training(method, task)[-1]
        assert phase.name == name
        found, images = terms(phase, task), normalised(task.training.images)
        expected = proxy_nca(phase.network(images).logits, task.training.labels).item()
        assert found == {"L_LSC": pytest.approx(expected)}


def test_the_margin_is_measured_in_cosines_and_does_not_train_the_scale() -> None:
    method = podnet(hinge=True)
    method.network = method.new_network([4])
    head = cosine_head(method.network)
    head.scale.data.fill_(7.0)
    features = torch.randn(16, 64, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(16) % 4
    loss = method.classification(head(features), labels, head)
    assert loss.item() == pytest.approx(local_similarity(head(features), labels, 7 * 0.6).item())
    # All images are within the margin here, so it adds a constant, which a trained scale would lower by shrinking.
    (with_margin,) = torch.autograd.grad(loss, head.scale)
    (without,) = torch.autograd.grad(local_similarity(head(features), labels, 100.0), head.scale)
    assert with_margin.item() == pytest.approx(without.item(), rel=1e-4)


def test_new_proxies_start_at_the_clusters_of_their_classes_features() -> None:
    method = podnet()
    learn(method, 1)
    teacher, task = method.network, task_of(method, 1)
    mean_norm = cosine_head(method.network).proxies.norm(dim=2).mean().item()
    next(iter(method.phases(task)))
    proxies = cosine_head(method.network).new_proxies.detach()
    assert proxies.shape == (2, 3, 64)
    assert proxies.norm(dim=2).flatten().tolist() == pytest.approx([mean_norm] * 6, rel=1e-4)
    assert len(proxies.flatten(0, 1).unique(dim=0)) == 6
    features = functional.normalize(method.context.infer(teacher, task.new_images.images).features)
    cosines = (features @ functional.normalize(proxies, dim=2).flatten(0, 1).T).reshape(-1, 2, 3).amax(2)
    assert (cosines.argmax(1) == task.new_images.labels - 4).float().mean().item() > 0.8


def grouped(num_in_group: int) -> tuple[Tensor, Tensor]:
    """Points around three centres far apart, and the means of the groups."""
    corners = torch.tensor([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]])
    noise = torch.randn(3, num_in_group, 2, generator=torch.Generator().manual_seed(0))
    points = corners[:, None] + 0.1 * noise
    return points.flatten(0, 1), points.mean(1)


def test_clusters_end_at_the_means_of_groups() -> None:
    points, means = grouped(20)
    best = min(
        (clusters(points, 3, torch.Generator().manual_seed(seed)) for seed in range(5)),
        key=lambda centres: torch.cdist(points, centres).amin(1).sum().item(),
    )
    ordered = best[torch.cdist(means, best).argmin(1)]
    torch.testing.assert_close(ordered, means)


def test_fewer_features_than_clusters_give_equal_centres() -> None:
    features = torch.tensor([[0.6, 0.8], [1.0, 0.0]])
    centres = clusters(features, 5, torch.Generator().manual_seed(0))
    assert set(map(tuple, centres.tolist())) == set(map(tuple, features.tolist()))
