"""Students: what they see, how long, and what they start from."""

import math

import pytest
import torch
from torch import Tensor

from foster.data.images import ImageSet
from foster.data.task import Task
from foster.methods.students import compression_data, distil, distillation_loss, move_towards, old_logits_of
from foster.networks import build_backbone
from foster.networks.boosted import BoostedNetwork, BoostedOutput
from foster.networks.network import Network, Output
from foster.settings.fit import FitSettings
from foster.settings.students import StudentSettings

NAMES = tuple("abcd")


def images_of(labels: list[int]) -> ImageSet:
    chance = torch.Generator().manual_seed(sum(labels) + len(labels))
    pixels = torch.randint(256, (len(labels), 3, 8, 8), generator=chance, dtype=torch.uint8)
    return ImageSet(pixels, torch.tensor(labels), NAMES)


def network(num_classes: int = 2) -> Network:
    return Network.create(build_backbone("resnet8"), num_classes)


def boosted_networks() -> list[BoostedNetwork]:
    """Two that grew from the same old network and have since learned different things."""
    old = network()
    grown = [BoostedNetwork.expand(old, 2) for _ in range(2)]
    with torch.no_grad():
        for number, each in enumerate(grown, start=1):
            for parameter in each.new_branch.parameters():
                parameter += 0.1 * number
    return grown


def seen_by_both(settings: StudentSettings, epoch: int) -> list[Tensor]:
    """What teacher and student see in a step of an epoch, of four images of one value each."""
    seen: list[Tensor] = []

    class Watching(Network):
        def forward(self, images: Tensor) -> Output:
            seen.append(images)
            return super().forward(images)

    def terms(own: Output, teacher: Output | BoostedOutput) -> dict[str, Tensor]:
        return {"loss": (own.logits - teacher.logits).square().mean()}

    teacher, student = (Watching(network().branches, network().head) for _ in range(2))
    data = images_of([0] * 4)
    phase = distil("compress", teacher, student, terms, settings, FitSettings(epochs=10), data)
    assert phase.on_epoch is not None
    phase.on_epoch(epoch)
    torch.manual_seed(3)
    batch = torch.arange(4.0)[:, None, None, None].expand(4, 3, 8, 8).contiguous()
    phase.objective(batch, data.labels)
    return [*seen, batch]


@pytest.mark.parametrize("changes", [{"compress_cutmix": 1.0}, {"compress_mixup": 1.0}])
def test_teacher_and_student_see_the_same_mix_until_the_last_epochs(changes: dict[str, float]) -> None:
    settings = StudentSettings(compress_unmixed=0.3, **changes)
    for epoch in (0, 6):
        teacher, student, batch = seen_by_both(settings, epoch)
        assert torch.equal(teacher, student)
        assert not torch.equal(student, batch)
    for epoch in (7, 9):
        _, student, batch = seen_by_both(settings, epoch)
        assert torch.equal(student, batch)


def test_without_a_wish_no_image_is_changed() -> None:
    _, student, batch = seen_by_both(StudentSettings(), 0)
    assert student is batch


def test_exemplars_come_as_often_as_wanted_and_new_images_once() -> None:
    new, held, extra = (
        images_of([2, 2, 3, 3, 3]),
        images_of([0, 1]),
        ImageSet(images_of([0]).images, -torch.ones(1).long(), ()),
    )
    task = Task(1, 2, 2, new, held)
    for repeats in (1, 3):
        data = compression_data(StudentSettings(compress_repeats=repeats), task, extra)
        assert data.class_counts(4).tolist() == [repeats, repeats, 2, 3]
        assert int((data.labels == -1).sum()) == 1
    first = Task(0, 0, 4, images_of([0, 1, 2, 3]), None)
    assert len(compression_data(StudentSettings(compress_repeats=3), first, None)) == 4


def test_a_student_is_moved_towards_the_mean_of_the_new_branches() -> None:
    boosted = boosted_networks()
    start = boosted[0].compressed()
    before = {name: value.clone() for name, value in start.state_dict().items()}
    for share in (1.0, 0.25, 0.0):
        student = boosted[0].compressed()
        student.load_state_dict(before)
        move_towards(student, boosted, share)
        for name, value in student.state_dict().items():
            part = name.replace("branches.0.", "new_branch.").replace("head.", "new_branch_head.")
            mean = sum(each.state_dict()[part].double() for each in boosted) / 2
            wanted = share * before[name].double() + (1 - share) * mean
            torch.testing.assert_close(value.double(), wanted, rtol=1e-5, atol=1e-5, msg=name)


def test_the_old_networks_logits_are_found_in_the_teachers_features() -> None:
    boosted = boosted_networks()[0].eval()
    images = torch.randn(5, 3, 8, 8)
    with torch.no_grad():
        out = boosted(images)
        torch.testing.assert_close(old_logits_of(boosted.old)(out.features), out.old_logits)


def test_a_temperature_of_its_own_softens_what_is_learned_and_leaves_gradients_their_size() -> None:
    chance = torch.Generator().manual_seed(5)
    teacher = 0.01 * torch.randn(6, 4, generator=chance)

    def gradient(settings: StudentSettings) -> Tensor:
        student = torch.zeros(6, 4, requires_grad=True)
        distillation_loss(settings, 2.0, torch.ones(4))(student, teacher).backward()
        assert student.grad is not None
        return student.grad

    # Of logits near 0, softmax is linear: what is left of the temperature is the size of the gradients.
    torch.testing.assert_close(
        gradient(StudentSettings(compress_temperature=8.0)), gradient(StudentSettings()), rtol=0.02, atol=1e-6
    )
    sharp = 20 * torch.eye(4)

    def least_loss(settings: StudentSettings) -> float:
        return distillation_loss(settings, 2.0, torch.ones(4))(sharp, sharp).item()

    assert least_loss(StudentSettings()) < 0.01
    assert least_loss(StudentSettings(compress_temperature=20.0)) > 100 * 0.9 * math.log(2)
