"""Quarter turns: a phase that also learns by how many quarters an image was turned.

Features that tell turned images apart serve classes that come later better than features of the known classes alone
(Zhu et al., CVPR 2021).
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from foster.data.task import Task
from foster.errors import SettingsError
from foster.losses import cross_entropy
from foster.methods.base import Method
from foster.networks.heads import Head
from foster.settings.method import Turns
from foster.training.phase import Phase


class TurnedNetwork(nn.Module):
    """A network and a second head, with a class for each pair of class and number of quarter turns. The second head is
    dropped after the phase."""

    def __init__(self, network: nn.Module, turn_head: Head) -> None:
        super().__init__()
        self.network = network
        self.turn_head = turn_head

    def forward(self, images: Tensor) -> Any:
        """The output of the network, without turns."""
        return self.network(images)

    @classmethod
    def of(
        cls, method: Method[Any], task: Task, network: nn.Module, num_features: int, purpose: str
    ) -> "TurnedNetwork":
        """With a new head on `num_features` features. Raises SettingsError if the images are not square."""
        height, width = task.training.image_size
        if height != width:
            raise SettingsError(
                f"quarter turns need square images, not {height} x {width}: leave out the settings *_turns"
            )
        with method.initialising(task, purpose):
            return cls(network, Head(num_features, 4 * task.num_total).to(method.context.device))

    def loss(self, features: Tensor, labels: Tensor, quarters: Tensor) -> Tensor:
        """L_turn: cross-entropy over pairs of class and turn, of the images of `with_turned`."""
        return cross_entropy(self.turn_head(features), 4 * labels.repeat(2) + quarters)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Load the weights. Weights of the network alone, as from `first_task_from`, do not change the second head."""
        if "turn_head.weight" not in state_dict:
            return self.network.load_state_dict(state_dict, strict, assign)
        return super().load_state_dict(state_dict, strict, assign)


def first_phase(method: Method[Any], task: Task, turns: Turns) -> Phase:
    """The first task. With `turns` "beside", each step also sees the images turned, and adds L_turn."""
    if turns == "none":
        return method.learn_first(task)
    network = method.grow(task)
    turned = TurnedNetwork.of(method, task, network, network.feature_size, "turns")

    def objective(images: Tensor, labels: Tensor) -> dict[str, Tensor]:
        seen, quarters = with_turned(images)
        out = network(seen)
        upright = out.logits[: len(images)]
        return {"L_CE": cross_entropy(upright, labels), "L_turn": turned.loss(out.features, labels, quarters)}

    return Phase("learn", turned, objective, method.settings.first, task.training)


def with_turned(images: Tensor) -> tuple[Tensor, Tensor]:
    """The images `[N, C, S, S]`, followed by the same turned by one, two and three quarters in rotation; and the number
    of quarters of each, `[2 N]`.

    Batches are shuffled, so no random number is needed.
    """
    index = torch.arange(len(images), device=images.device)
    choice = index % 3
    views = torch.stack([torch.rot90(images, quarters, (2, 3)) for quarters in (1, 2, 3)])
    turned = views[choice, index].contiguous(memory_format=torch.channels_last)
    return torch.cat([images, turned]), torch.cat([torch.zeros_like(choice), choice + 1])
