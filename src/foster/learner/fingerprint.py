"""What one `learn` starts from, as plain data: equal fingerprints lead to equal weights."""

from collections.abc import Mapping
from typing import Any

from foster.data.digest import digest, images_digest, tensors_of
from foster.data.images import ImageSet
from foster.learner.knowledge import Knowledge
from foster.learner.plan import Plan
from foster.settings.base import filled
from foster.settings.keys import flat
from foster.settings.learner import LearnerSettings


def fingerprint(plan: Plan, unlabeled: ImageSet | None) -> dict[str, Any]:
    """The settings, and hashes of the images as they were decoded and of what is known before them.

    Where and how it is computed is not part of it, and neither are names and places of files.
    """
    intake = plan.intake
    parts = {"training": intake.train, "held-out": intake.held_out}
    images = {f"{name} {key}": value for name, part in parts.items() for key, value in tensors_of(part).items()}
    return {
        "settings": plan.settings.nested(),
        "known": _known(plan.before) if plan.before else "",
        "images": digest(images, intake.class_names),
        "unlabeled": images_digest(unlabeled),
    }


def difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """In words, the first thing in which two fingerprints differ; None where they do not."""
    # What went on from a bundle and does not speak of a trunk began when there was none, as such bundles do.
    saved = {"trunk": "none", **before["settings"]} if before["known"] else before["settings"]
    old, new = flat(filled(LearnerSettings, saved).nested()), flat(now["settings"])
    for key in sorted(old.keys() | new.keys()):
        if old.get(key) != new.get(key):
            return f"with {key} = {old.get(key)!r}, which is {new.get(key)!r} now"
    words = {"known": "from another bundle", "images": "of other images", "unlabeled": "with other unlabeled images"}
    return next((text for key, text in words.items() if before[key] != now[key]), None)


def _known(knowledge: Knowledge) -> str:
    memories = {"exemplars": knowledge.exemplars.state(), "held-out": knowledge.held_out.state()}
    tensors = dict(knowledge.network.state_dict())
    tensors |= {f"{name} {key}": value for name, state in memories.items() for key, value in state.items()}
    preprocessing = knowledge.preprocessing.model_dump(exclude_defaults=True)
    return digest(tensors, knowledge.class_names, knowledge.task_sizes, preprocessing)
