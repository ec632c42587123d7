"""Hashes of images and tensors: equal ones mean that they are equal, wherever and however they are kept."""

import hashlib
import json
from collections.abc import Mapping

import torch
from torch import Tensor

from foster.data.images import ImageSet


def images_digest(images: ImageSet | None) -> str:
    """A hash of the images and their labels; empty where there are none."""
    return digest(tensors_of(images)) if images is not None else ""


def tensors_of(images: ImageSet) -> dict[str, Tensor]:
    """What tells images from others: their pixels or, of photos, the hashes of their files, and the labels."""
    stack = images.stack
    if not isinstance(stack, Tensor):
        stack = torch.tensor([*"".join(stack.ids()).encode()], dtype=torch.uint8)
    return {"images": stack, "labels": images.labels}


def digest(tensors: Mapping[str, Tensor], *facts: object) -> str:
    """A hash of tensors by their names and of plain facts."""
    hashed = hashlib.sha256(json.dumps(facts).encode())
    for name, tensor in tensors.items():
        plain = tensor.detach().cpu().contiguous()
        hashed.update(json.dumps([name, str(plain.dtype), list(plain.shape)]).encode())
        hashed.update(plain.flatten().view(torch.uint8).numpy().data)
    return hashed.hexdigest()
