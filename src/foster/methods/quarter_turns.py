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
    """The first task. With `turns` "beside", each step sees every image upright and once more turned by one to three
    quarters, and adds L_turn: cross-entropy over pairs of class and number of quarters."""
    if turns == "none":
        return method.learn_first(task)
    network = method.grow(task)
    with method.initialising(task, "turns"):
        turn_head = Head(network.feature_size, 4 * task.num_new).to(method.context.device)

    def objective(images: Tensor, labels: Tensor) -> dict[str, Tensor]:
        turned, quarters = quarter_turned(images)
        out = network(torch.cat([images, turned]))
        pairs = torch.cat([4 * labels, 4 * labels + quarters])
        return {
            "L_CE": cross_entropy(out.logits[: len(images)], labels),
            "L_turn": cross_entropy(turn_head(out.features), pairs),
        }

    return Phase("learn", TurnedNetwork(network, turn_head), objective, method.settings.first, task.training)


def quarter_turned(images: Tensor) -> tuple[Tensor, Tensor]:
    """The images `[N, C, S, S]`, turned by one, two and three quarters in rotation, and the number of quarters `[N]`.

    Batches are shuffled, so no random number is needed.
    """
    index = torch.arange(len(images), device=images.device)
    choice = index % 3
    views = torch.stack([torch.rot90(images, quarters, (2, 3)) for quarters in (1, 2, 3)])
    return views[choice, index].contiguous(memory_format=torch.channels_last), choice + 1
