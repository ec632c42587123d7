"""Images as a bundle keeps them, and bundles that somebody has changed who knows how their hashes are made."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from torch import Tensor

from foster.bundle.folder import MANIFEST, ImageFiles
from foster.data.photos.decode import image_id, png_of
from foster.system.files import sha256


def files_of(stacks: Sequence[Sequence[Tensor]]) -> list[ImageFiles]:
    """PNG files of images `[3, H, W]`, a list for each class id."""
    return [tuple((image_id(image), png_of(image.permute(1, 2, 0).numpy())) for image in images) for images in stacks]


def made_facts(*class_names: str, **changes: Any) -> dict[str, Any]:
    """What `write_bundle` is told of a bundle of these classes; keywords replace facts."""
    plain = {
        "method": "foster",
        "backbone": "resnet8",
        "settings": {"method": "foster", "seed": 3},
        "classes": class_names,
        "task_sizes": (len(class_names),),
        "preprocessing": {"height": 6, "width": 5, "mean": (0.5, 0.4, 0.3), "std": (0.2, 0.2, 0.1)},
        "temperature": 1.25,
        "num_calibration_images": 12,
        "history": (),
    }
    return {**plain, **changes}


def facts_of(bundle: Path) -> dict[str, Any]:
    """The content of `bundle.json` without its hash."""
    facts: dict[str, Any] = json.loads((bundle / MANIFEST).read_bytes())
    del facts["sha256"]
    return facts


def forge_manifest(bundle: Path, facts: Mapping[str, Any]) -> None:
    """Write `bundle.json` with these facts and their hash."""
    text = json.dumps(facts, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    content = json.dumps({**facts, "sha256": sha256(text.encode(errors="replace"))})
    (bundle / MANIFEST).write_text(content, encoding="utf-8")


def forge(bundle: Path, files: Mapping[str, bytes] = MappingProxyType({}), **changes: Any) -> None:
    """Change files and facts of a bundle; all hashes stay right."""
    facts = facts_of(bundle)
    for name, content in files.items():
        (bundle / name).write_bytes(content)
        facts["files"][name] = {"sha256": sha256(content), "bytes": len(content)}
    forge_manifest(bundle, facts | changes)
