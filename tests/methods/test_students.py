"""Students: what they start from, and who teaches them."""

import torch

from foster.methods.students import move_towards, old_logits_of
from foster.networks import build_backbone
from foster.networks.boosted import BoostedNetwork
from foster.networks.network import Network


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
