import io
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image
from servers import photo, service_of

import foster
from foster.learner.familiarity import Familiarity
from foster.serving.served import UNSURE_BELOW, Picture, Served


@pytest.fixture(scope="module")
def served(small_bundle: Path) -> Served:
    return service_of(small_bundle).current.now


def heat_of(served: Served, size: tuple[int, int], rule: str) -> Image.Image:
    knowledge = served.learner.knowledge
    assert knowledge is not None
    served.learner.knowledge = replace(
        knowledge, preprocessing=knowledge.preprocessing.model_copy(update={"rule": rule})
    )
    _, png = served.heat_map(served.picture(photo(0, size=size)), None)
    return Image.open(io.BytesIO(png))


def test_a_heat_map_has_the_shape_of_the_picture_and_is_clear_where_nothing_was_seen(served: Served) -> None:
    stretched = heat_of(served, (40, 20), "stretch")
    assert stretched.size == (8, 8)  # laid over the whole picture
    assert stretched.getchannel("A").getextrema()[0] >= 60
    cropped = heat_of(served, (80, 20), "crop")
    assert cropped.size == (16, 8)
    assert cropped.getchannel("A").crop((0, 0, 4, 8)).getextrema() == (0, 0)
    assert cropped.getchannel("A").crop((12, 0, 16, 8)).getextrema() == (0, 0)
    assert cropped.getchannel("A").crop((4, 0, 12, 8)).getextrema()[0] >= 60


def test_a_map_of_few_places_is_enlarged_about_their_middles(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    coarse = torch.tensor([1.0, 1.0, 0.0, 0.0]).expand(1, 4, 4)
    monkeypatch.setattr("foster.serving.served.grad_cam", lambda *given: coarse)
    alpha = heat_of(served, (8, 8), "stretch").getchannel("A").crop((0, 4, 8, 5))
    assert list(alpha.tobytes()) == [180, 180, 180, 150, 90, 60, 60, 60]


def test_a_bundle_that_cannot_answer_is_not_served(small_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(learner: foster.Learner, *arguments: object) -> None:
        raise foster.DeviceError("out of memory")

    monkeypatch.setattr(foster.Learner, "answers", broken)
    with pytest.raises(foster.DeviceError):
        Served.load(small_bundle, "cpu", None)


def test_a_class_that_is_not_known_cannot_be_explained(served: Served) -> None:
    with pytest.raises(KeyError):
        served.heat_map(Picture(torch.zeros(3, 8, 8, dtype=torch.uint8), (8, 8)), "dragon")


def test_what_is_unknown_is_told_by_the_bundle_where_it_can(small_bundle: Path, tmp_path: Path) -> None:
    assert Served.load(small_bundle, "cpu", "auto").unknown_below == UNSURE_BELOW
    learner = foster.load(small_bundle, device="cpu")
    random = torch.Generator().manual_seed(0)
    knowledge, images = learner.knowledge, torch.randint(0, 256, (40, 3, 8, 8), dtype=torch.uint8, generator=random)
    assert knowledge is not None
    described = learner.classifier().described(images)
    familiarity = Familiarity.fitted(described[1], torch.arange(40) % 2, described)
    assert familiarity is not None
    scores = familiarity.scores(*described).sort().values
    familiarity = replace(familiarity, threshold=float(scores[9:11].mean()))
    learner.knowledge = replace(knowledge, familiarity=familiarity)
    served = Served.load(learner.save(tmp_path / "v2"), "cpu", "auto")
    assert served.unknown_below == "auto"
    is_unknown = [answer.is_unknown for answer in served.answers(images)]
    assert is_unknown == [answer.is_unknown for answer in learner.answers(images, unknown_below="auto")]
    assert sum(is_unknown) == 10
    assert Served.load(tmp_path / "v2", "cpu", 0.0).unknown_below == 0.0
