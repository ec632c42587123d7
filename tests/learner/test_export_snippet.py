"""Who follows the snippet of an export sees what `foster predict` sees, from the file on."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from rendered_photos import THINGS, write_photos
from small_learners import digits, small_learner

from foster.data.photos.read import decoded
from foster.data.photos.resize import Resizing
from foster.learner.export import snippet


@pytest.mark.parametrize("rule", ["crop", "stretch"])
@pytest.mark.parametrize("size", [(300, 200), (900, 1300)])
def test_the_snippet_prepares_a_photo_as_predict_does(
    rule: str, size: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = small_learner(image_size=(48, 64), resize=rule, epochs_scale=0.005)
    learner.learn(*digits("zero", "one", last=4))
    assert learner.knowledge is not None
    write_photos(tmp_path, [next(iter(THINGS))], 1)
    source = next(tmp_path.rglob("*.jpg"))
    Image.open(source).resize(size).save(tmp_path / "photo.jpg", quality=90)
    monkeypatch.chdir(tmp_path)
    text = snippet(learner.knowledge, Path("model.onnx"))
    preparing = text[: text.index("session =")].replace("import json, numpy, onnxruntime", "import numpy")
    names: dict[str, object] = {}
    exec(preparing, names)
    expected = next(decoded([tmp_path / "photo.jpg"], Resizing(48, 64, rule)))
    assert isinstance(expected, torch.Tensor)
    found = np.array(names["image"])
    assert np.array_equal(found, expected.permute(1, 2, 0).numpy())
    compile(text, "snippet", "exec")
