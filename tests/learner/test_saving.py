"""What a learner knows, back from a bundle: in the same time after any number of tasks, and never from NaN."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

import foster
from foster.bundle.files import BundleError
from foster.methods.base import Method
from foster.networks.boosted import BoostedNetwork


def rewritten(bundle: Path, **changes: Any) -> None:
    """Change the manifest as whoever wrote it could have."""
    data = {**json.loads((bundle / "bundle.json").read_bytes()), **changes}
    data.pop("sha256")
    text = json.dumps(data, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    data["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    (bundle / "bundle.json").write_text(json.dumps(data), encoding="utf-8")


def test_a_bundle_after_many_tasks_is_loaded_as_one_after_the_first(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, make = [], Method.new_backbone
    monkeypatch.setattr(Method, "new_backbone", lambda method: made.append(method) or make(method))
    monkeypatch.setattr(BoostedNetwork, "expand", lambda *given: pytest.fail("a past task was built again"))
    rewritten(bundle, task_sizes=[1, 1] + [0] * 998)
    assert foster.load(bundle, device="cpu").class_names == ("zero", "one")
    assert len(made) == 1


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_numbers_are_refused(bundle: Path, value: float) -> None:
    path = bundle / "network.safetensors"
    weights = safetensors.torch.load_file(path)
    weights["head.bias"] = torch.full_like(weights["head.bias"], value)
    safetensors.torch.save_file(weights, path)
    content = path.read_bytes()
    files = json.loads((bundle / "bundle.json").read_bytes())["files"]
    files[path.name] = {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
    rewritten(bundle, files=files)
    with pytest.raises(BundleError, match="are not all finite numbers; take an older bundle"):
        foster.load(bundle, device="cpu")
