"""The bundle that answers: loaded, tried out, explained, exchanged."""

import asyncio
import shutil
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
import torch
from PIL import Image
from servers import SECONDS

import foster
from foster.bundle.folder import BundleError
from foster.bundle.promotion import promote
from foster.cli import app
from foster.learner.familiarity import Familiarity
from foster.learner.learner import Learner
from foster.serving import served as served_module
from foster.serving.served import UNSURE_BELOW, Current, Served, find_link


def test_what_is_unknown_is_told_by_the_bundle_where_it_can(small_bundle: Path, tmp_path: Path) -> None:
    assert Served.load(small_bundle, "cpu", "auto").unknown_below == UNSURE_BELOW
    learner = foster.load(small_bundle, device="cpu")
    random = torch.Generator().manual_seed(0)
    knowledge, images = learner.knowledge, torch.randint(0, 256, (40, 3, 8, 8), dtype=torch.uint8, generator=random)
    described = learner.classifier().described(images)
    familiarity = Familiarity.fitted(described[1], torch.arange(40) % 2, described)
    scores = familiarity.scores(*described).sort().values
    familiarity = replace(familiarity, threshold=float(scores[9:11].mean()))
    learner.knowledge = replace(knowledge, familiarity=familiarity)
    served = Served.load(learner.save(tmp_path / "v2"), "cpu", "auto")
    assert served.unknown_below == "auto"
    is_unknown = [answer.is_unknown for answer in served.answers(images)]
    assert is_unknown == [answer.is_unknown for answer in learner.answers(images, unknown_below="auto")]
    assert sum(is_unknown) == 10
    assert Served.load(tmp_path / "v2", "cpu", 0.0).unknown_below == 0.0


def test_a_bundle_in_which_only_a_name_is_new_has_another_version(small_bundle: Path, tmp_path: Path) -> None:
    learner = foster.load(small_bundle, device="cpu")
    learner.rename(learner.class_names[0], "renamed")
    before, after = (Served.load(folder, "cpu", None) for folder in (small_bundle, learner.save(tmp_path / "v2")))
    assert before.version != after.version


def test_a_folder_of_bundles_and_the_link_are_followed_and_a_bundle_is_not(bundle: Path) -> None:
    promote(bundle)
    link = bundle.parent / "current"
    assert find_link(bundle.parent) == link
    assert find_link(link) == link
    assert find_link(bundle) is None


def test_the_link_is_resolved_once_so_that_no_bundle_is_read_half_and_half(bundle: Path) -> None:
    shutil.copytree(bundle, bundle.parent / "v2")
    promote(bundle)
    seen: list[Path] = []

    def load(folder: Path) -> Served:
        seen.append(folder)
        promote(bundle.parent / "v2")  # in the middle of loading
        return Served.load(folder, "cpu", None)

    current = Current(bundle.parent, load)
    assert seen == [bundle.resolve()]
    assert current.now.name == "v1"


def test_a_bundle_whose_answers_are_nan_is_not_promoted_not_served_and_does_not_predict(
    bundle: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundles = bundle.parent
    learner = Learner.load(bundle, device="cpu")
    with torch.no_grad():
        for weights in learner.knowledge.network.parameters():
            weights.fill_(3e38)  # finite, so that it can be saved
    learner.save(bundles / "v2")
    promote(bundle)
    current = Current(bundles, lambda folder: Served.load(folder, "cpu", None))
    Image.new("RGB", (8, 8)).save(bundles / "photo.png")
    for words in (["promote", bundles / "v2"], ["predict", bundles / "v2", bundles / "photo.png"]):
        with pytest.raises(SystemExit) as ended:
            app([str(word) for word in words])
        said = capsys.readouterr()
        assert ended.value.code
        assert "not numbers" in said.err
        assert "nan" not in said.out
    assert (bundles / "current").readlink().name == "v1"
    (bundles / "current").unlink()
    (bundles / "current").symlink_to("v2")
    current.look()
    assert current.now.name == "v1"
    assert "'v2'" in str(current.problem)


def test_a_bundle_that_cannot_be_loaded_is_tried_again_and_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("v1", "v2"):
        (tmp_path / name).mkdir()
    link = tmp_path / "current"
    link.symlink_to("v1")
    is_whole, told = False, []

    def load(folder: Path) -> Served:
        if folder.name == "v2" and not is_whole:
            raise BundleError("damaged")
        return Served(cast(Learner, None), folder.name, "", None)

    def problem_of(name: str, num_looks: int = 1) -> str | None:
        """What the problem is where the link points at `name`."""
        link.unlink()
        link.symlink_to(name)
        for _ in range(num_looks):
            current.look()
        return current.problem

    current = Current(tmp_path, load)
    monkeypatch.setattr(served_module.logger, "error", lambda *words: told.append(words))
    assert "'v2'" in str(problem_of("v2", 3))
    assert problem_of("v1") is None
    assert "the link" in str(problem_of("nowhere", 2))
    assert len(told) == 2
    assert (current.now.name, current.num_swaps) == ("v1", 0)
    is_whole = True

    async def watched() -> None:
        """The watch of a server does not end with the first problem."""
        watching = asyncio.create_task(current.watch())
        async with asyncio.timeout(SECONDS):
            while current.problem:
                await asyncio.sleep(0.01)
        watching.cancel()

    monkeypatch.setattr(served_module, "RETRY_SECONDS", 0.01)
    link.unlink()
    link.symlink_to("v2")
    asyncio.run(watched())
    current.look()
    assert (current.now.name, current.num_swaps) == ("v2", 1)
