"""What a learner knows, with its classes put together or left out."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from foster.data.images import ImageSet, ids_of, joined
from foster.data.memory import ExemplarMemory
from foster.errors import DataError
from foster.learner.held_out import held_out_quota
from foster.learner.knowledge import Knowledge, Memories
from foster.learner.merged_row import merged_row
from foster.networks.heads import Head
from foster.networks.network import Network
from foster.seeding import Address, initialisation
from foster.settings.learner import LearnerSettings


@dataclass(frozen=True)
class Regrouping:
    """For each class afterwards, the ids of those that it is made of, and its name; ids in no group are left out.

    A class stands where the first of its group stood. Ids count anew where one is left out.
    """

    groups: tuple[tuple[int, ...], ...]
    class_names: tuple[str, ...]

    @property
    def merged(self) -> list[int]:
        """The ids, afterwards, of classes that are several."""
        return [k for k, group in enumerate(self.groups) if len(group) > 1]

    def task_sizes(self, before: Sequence[int]) -> tuple[int, ...]:
        """How many classes are left of those of each task; none of a task may be."""
        ends = torch.tensor(before).cumsum(0)
        homes = torch.searchsorted(ends, torch.tensor([group[0] for group in self.groups]), right=True)
        return tuple(torch.bincount(homes, minlength=len(before)).tolist())

    def summed(self, probability: Tensor) -> Tensor:
        """Probabilities `[N, C]` of before, added up for each class afterwards, and then those of classes left out."""
        staying = {k for group in self.groups for k in group}
        gone = [(k,) for k in range(probability.shape[1]) if k not in staying]
        return torch.stack([probability[:, list(group)].sum(1) for group in (*self.groups, *gone)], dim=1)


FeaturesOf = Callable[[ImageSet], Tensor]
"""Features `[N, d]` of images that are kept."""


def regrouped(
    knowledge: Knowledge, settings: LearnerSettings, regrouping: Regrouping, features_of: FeaturesOf
) -> Knowledge:
    """What is known, for the classes afterwards; its calibration is that of before."""
    sizes = regrouping.task_sizes(knowledge.task_sizes)
    _check_own(knowledge.network, knowledge.method)
    with initialisation(Address(settings.seed, "frame for regrouped classes")):
        network = knowledge.network.regrouped(regrouping.groups, sizes)
    _check_whole(knowledge.network, network, knowledge.method)
    for class_id in regrouping.merged:
        _fit_row(knowledge, network, regrouping.groups[class_id], class_id, features_of)
    quota = settings.memory_per_class
    spared = held_out_quota(quota, knowledge.held_out_share)
    trained = None if quota is None else quota - (spared or 0)
    exemplars = _together(knowledge.exemplars, regrouping.groups, trained)
    held_out = _together(knowledge.held_out, regrouping.groups, spared)
    return replace(
        knowledge,
        class_names=regrouping.class_names,
        task_sizes=sizes,
        network=network,
        memories=Memories(lambda: exemplars, lambda: held_out),
    )


def _check_own(before: Network, method: str) -> None:
    """Refuse networks and heads that do not say themselves how their classes are put together: others may keep
    something for each class that nobody here knows of."""
    if not all("regrouped" in vars(type(part)) for part in (before, before.head)):
        raise _unmendable(method)


def _check_whole(before: Network, after: Network, method: str) -> None:
    """Refuse to lose what a method has put into its network beside backbones and head."""
    if before.state_dict().keys() != after.state_dict().keys():
        raise _unmendable(method)


def _unmendable(method: str) -> DataError:
    return DataError(f"method '{method}' has a network of its own kind, whose classes cannot be merged or forgotten")


def _fit_row(
    knowledge: Knowledge, network: Network, members: Sequence[int], class_id: int, features_of: FeaturesOf
) -> None:
    """The output of a class that was several, from the kept photos of all; a cosine head has it from its proxies."""
    before, after = knowledge.network.head, network.head
    exemplars = knowledge.images_of(knowledge.exemplars)
    if not len(exemplars):
        raise DataError(
            f"method '{knowledge.method}' keeps no exemplars, from which the output of a merged class is found; "
            "use method=foster or another that does"
        )
    if isinstance(before, Head) and isinstance(after, Head):
        features = features_of(exemplars)
        row = merged_row(*before.affine, features, exemplars.labels, members, knowledge.temperature)
        with torch.no_grad():
            after.weight[class_id], after.bias[class_id] = row


def _together(memory: ExemplarMemory, groups: Sequence[Sequence[int]], quota: int | None) -> ExemplarMemory:
    """A memory with a class for each group. Several take turns, so that the first images are some of each; equal ones
    are kept once, and `quota` in all."""
    result = ExemplarMemory()
    for class_id, group in enumerate(groups):
        stacks = [memory.stack_of(k) for k in group if k < memory.num_classes]
        if len(stacks) > 1:
            ends = itertools.accumulate(map(len, stacks))
            places = [list(range(end - len(stack), end)) for stack, end in zip(stacks, ends, strict=True)]
            whole, longest = joined(stacks), max(map(len, stacks))
            ids, by_turns = ids_of(whole), [own[k] for k in range(longest) for own in places if k < len(own)]
            different: dict[str, int] = {}
            for place in by_turns:
                different.setdefault(ids[place], place)
            stacks = [whole[torch.tensor(list(different.values())[:quota], dtype=torch.int64)]]
        if stacks:
            result.remember(class_id, stacks[0])
    return result
