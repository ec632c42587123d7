"""A phase that learned nothing is noticed, and tried once more at a lower rate."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch

from foster.data.images import ImageSet
from foster.evaluation.network import Infer
from foster.training.phase import Evaluate, Phase

LOWER_RATE = 0.1
NUM_LOOKED_AT = 256
LEAST_GAIN = 0.1
"""The share of the way from chance to all right that a trained network must have come, on what it was trained on."""


def with_second_try(
    phases: Iterator[Phase | Evaluate], infer: Infer, num_classes: int, tell: Callable[[str], None]
) -> Iterator[Phase | Evaluate]:
    """The same phases; one that ends near chance starts again from where it began, at a tenth of its rate.

    What decides is the trained network alone, so that a `learn` which was interrupted decides in the same way.
    """
    for phase in phases:
        if not isinstance(phase, Phase):
            yield phase
            continue
        began = {name: value.clone() for name, value in phase.network.state_dict().items()}
        yield phase
        if is_near_chance(phase, infer, num_classes):
            phase.network.load_state_dict(began)
            rate = LOWER_RATE * phase.fit.learning_rate
            tell(f"{phase.name}: it learned nothing, and was started again at a rate of {rate:g}")
            yield replace(phase, name=f"{phase.name} again", fit=phase.fit.model_copy(update={"learning_rate": rate}))


def is_near_chance(phase: Phase, infer: Infer, num_classes: int) -> bool:
    """Whether a network tells the images that it was trained on hardly better apart than by guessing."""
    sample = _spread(phase.data)
    if num_classes < 2 or not len(sample):
        return False
    logits = infer(phase.network, sample.stack).logits
    right = float((logits.argmax(1).cpu() == sample.labels.cpu()).double().mean())
    return not right - 1 / num_classes >= LEAST_GAIN * (1 - 1 / num_classes)


def _spread(data: ImageSet) -> ImageSet:
    """Some labelled images from all over the set."""
    labelled = torch.nonzero(data.labels.cpu() >= 0)[:, 0]
    stride = max(1, len(labelled) // NUM_LOOKED_AT)
    return data.select(labelled[::stride][:NUM_LOOKED_AT])
