"""What a learner knows, with its classes put together or left out."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from foster.data.images import ImageSet, ids_of, joined
from foster.data.memory import ExemplarMemory
from foster.errors import DataError
from foster.learner.held_out import held_out_quota
from foster.learner.knowledge import Knowledge, Memories
from foster.networks.heads import Head
from foster.networks.network import Network
from foster.seeding import Address, initialisation
from foster.settings.learner import LearnerSettings

RIDGE = 1e-2
"""What draws the combination to the plain sum of the members' rows."""

MOST_ROUNDS = 50
LENGTHS = [0.5**k for k in range(12)]
LEAST_CURVATURE = 1e-9


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
    before, method = knowledge.network, knowledge.method
    unmendable = f"method '{method}' has a network of its own kind, whose classes cannot be merged or forgotten"
    # Networks and heads that do not say themselves how classes are put together may keep something for each class that
    # nobody here knows of.
    if not all("regrouped" in vars(type(part)) for part in (before, before.head)):
        raise DataError(unmendable)
    with initialisation(Address(settings.seed, "frame for regrouped classes")):
        network = before.regrouped(regrouping.groups, sizes)
    if before.state_dict().keys() != network.state_dict().keys():  # what a method has put beside backbones and head
        raise DataError(unmendable)
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
            members = [range(end - len(stack), end) for stack, end in zip(stacks, ends, strict=True)]
            whole = joined(stacks)
            ids, different = ids_of(whole), dict[str, int]()
            for turn in itertools.zip_longest(*members):
                for position in turn:
                    if position is not None:
                        different.setdefault(ids[position], position)
            stacks = [whole[torch.tensor(list(different.values())[:quota], dtype=torch.int64)]]
        if stacks:
            result.remember(class_id, stacks[0])
    return result


def merged_row(
    weight: Tensor, bias: Tensor, features: Tensor, labels: Tensor, members: Sequence[int], temperature: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Weight `[d]` and bias `[]` of the class that `members` become, for a head of weight `[C, d]` and bias `[C]`.

    Its probability is to be the sum of theirs, which has the logit log(exp z_a + exp z_b): no linear row gives that
    exactly. The row that comes nearest to it on the kept photos is found among the combinations of all present rows: a
    logistic regression on as many numbers as there are classes, so that few photos suffice. It is fitted on features
    `[N, d]` with labels `[N]`, among which every class counts the same.

    The others keep their rows, so that only what the merged class takes from them changes. Where there are no others,
    any row will do, and the mean is taken.
    """
    rows, offsets, chosen = weight.detach().double(), bias.detach().double(), list(members)
    others = [k for k in range(len(rows)) if k not in chosen]
    if not others:
        return weight.detach().mean(0), bias.detach().mean()
    logits = (features.to(rows) @ rows.T + offsets) / temperature
    rest = logits[:, others].logsumexp(1)
    wanted = torch.sigmoid(logits[:, chosen].logsumexp(1) - rest)
    labels = labels.to(rows.device)
    share = 1 / torch.bincount(labels, minlength=len(rows))[labels].double()
    share = share / share.sum()
    mean = logits.mean(1, keepdim=True)  # a softmax does not see what all logits have in common
    plain = torch.zeros(len(rows), dtype=rows.dtype, device=rows.device)
    plain[chosen] = 1.0
    known = torch.cat((logits - mean, torch.ones_like(mean)), dim=1)
    begin = mean[:, 0] + (logits - mean) @ plain - rest
    ridge = torch.full((len(rows) + 1,), RIDGE, dtype=rows.dtype, device=rows.device)
    ridge[-1] = 0.0  # the bias is free
    change = _fitted(begin, known, wanted, share, ridge)
    factors, shift = plain + change[:-1], change[-1]
    mixture = factors + (1 - factors.sum()) / len(rows)
    return (mixture @ rows).to(weight), (mixture @ offsets + temperature * shift).to(bias)


def _fitted(begin: Tensor, known: Tensor, wanted: Tensor, share: Tensor, ridge: Tensor) -> Tensor:
    """The factors `[k]` with which `begin + known @ factors` are the logits of the `wanted` probabilities `[N]` as well
    as can be, each weighted by its `share`, where the square of each factor costs half its `ridge` `[k]`."""

    def loss(change: Tensor) -> Tensor:
        fit = functional.binary_cross_entropy_with_logits(begin + known @ change, wanted, share, reduction="sum")
        return fit + (ridge * change.square()).sum() / 2

    # Newton's method: torch's optimisers import its compiler, which takes longer than all of this.
    change = torch.zeros_like(ridge)
    for _ in range(MOST_ROUNDS):
        predicted = torch.sigmoid(begin + known @ change)
        slope = known.T @ (share * (predicted - wanted)) + ridge * change
        weights = share * predicted * (1 - predicted)
        curvature = known.T @ (known * weights[:, None]) + torch.diag(ridge + LEAST_CURVATURE)
        newton, before = torch.linalg.solve(curvature, slope), loss(change)
        length = next((length for length in LENGTHS if loss(change - length * newton) < before), None)
        if length is None:
            break
        change = change - length * newton
    return change
