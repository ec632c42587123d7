"""A first task that also learns by how many quarters an image was turned.

On B50 the backbone of the first task serves classes that it has not seen. Features that tell turned images apart serve
such classes better than features of the known classes alone (Zhu et al., CVPR 2021).
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from foster.data.task import Task
from foster.losses import cross_entropy
from foster.methods.base import Method
from foster.networks.heads import Head
from foster.networks.network import Network
from foster.settings.method import FirstTurns
from foster.training.phase import Phase


class TurnedNetwork(nn.Module):
    """A network and a second head on its features, with a class for each pair of class and number of quarter turns.

    The second head is only used while the first task is trained.
    """

    def __init__(self, network: Network, turn_head: Head) -> None:
        super().__init__()
        self.network = network
        self.turn_head = turn_head

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Load the weights. Those of the network alone, as `first_task_from` has them, leave the second head."""
        if "turn_head.weight" not in state_dict:
            return self.network.load_state_dict(state_dict, strict, assign)
        return super().load_state_dict(state_dict, strict, assign)


def first_phase(method: Method[Any], task: Task, turns: FirstTurns) -> Phase:
    """The first task, trained on classes (L_CE) and, unless `turns` is "none", on pairs of class and turn (L_turn).

    "beside": each step sees every image upright and once more turned by one to three quarters. "all": a quarter of the
    images is upright, the others are turned; the step is not larger.
    """
    if turns == "none":
        return method.learn_first(task)
    network = method.grow(task)
    with method.initialising(task, "turns"):
        turn_head = Head(network.feature_size, 4 * task.num_new).to(method.context.device)

    def upright_and_turned(images: Tensor, labels: Tensor) -> dict[str, Tensor]:
        turned, quarters = quarter_turned(images, least=1)
        out = network(torch.cat([images, turned]))
        pairs = torch.cat([4 * labels, 4 * labels + quarters])
        return {
            "L_CE": cross_entropy(out.logits[: len(images)], labels),
            "L_turn": cross_entropy(turn_head(out.features), pairs),
        }

    def turned_alone(images: Tensor, labels: Tensor) -> dict[str, Tensor]:
        turned, quarters = quarter_turned(images, least=0)
        out = network(turned)
        return {
            "L_CE": cross_entropy(out.logits[::4], labels[::4]),
            "L_turn": cross_entropy(turn_head(out.features), 4 * labels + quarters),
        }

    objective = upright_and_turned if turns == "beside" else turned_alone
    return Phase("learn", TurnedNetwork(network, turn_head), objective, method.settings.first, task.training)


def quarter_turned(images: Tensor, least: int) -> tuple[Tensor, Tensor]:
    """The images `[N, C, S, S]`, each turned by `least` to 3 quarters in turn, and how many they are, `[N]`.

    Batches are shuffled, so the position in a batch is as good as a random number.
    """
    index = torch.arange(len(images), device=images.device)
    choice = index % (4 - least)
    views = torch.stack([torch.rot90(images, quarters, (2, 3)) for quarters in range(least, 4)])
    return views[choice, index].contiguous(memory_format=torch.channels_last), choice + least
