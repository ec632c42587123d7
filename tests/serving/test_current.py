import asyncio
import logging
import shutil
from pathlib import Path
from typing import cast

import pytest

from foster.bundle.files import BundleError
from foster.bundle.promotion import promote
from foster.learner.learner import Learner
from foster.serving import current as current_module
from foster.serving.current import Current, find_link
from foster.serving.served import Served


def test_a_folder_of_bundles_and_the_link_are_followed_and_a_bundle_is_not(bundle: Path) -> None:
    promote(bundle)
    link = bundle.parent / "current"
    assert find_link(bundle.parent) == link
    assert find_link(link) == link
    assert find_link(bundle) is None


def test_what_is_no_bundle_is_refused_with_a_word_on_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="there is no bundle"):
        find_link(tmp_path / "nothing")
    with pytest.raises(BundleError, match="'foster promote BUNDLE' makes one"):
        find_link(tmp_path)
    (tmp_path / "current").symlink_to("gone")
    with pytest.raises(BundleError, match="leads nowhere"):
        Current(tmp_path, lambda folder: Served.load(folder, "cpu", None))


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


class EndedError(Exception):
    """Nobody watches any more."""


def test_a_bundle_that_cannot_be_loaded_is_tried_again_more_and_more_rarely(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("v1", "v2"):
        (tmp_path / name).mkdir()
    link = tmp_path / "current"
    link.symlink_to("v1")
    clock, tried = 0.0, []

    def load(folder: Path) -> Served:
        if folder.name == "v2":
            tried.append(clock)
            raise BundleError("damaged")
        return Served(cast(Learner, None), folder.name, "", None)

    def point_at(name: str) -> None:
        link.unlink()
        link.symlink_to(name)

    async def sleep(seconds: float) -> None:
        nonlocal clock
        clock += seconds
        if clock == 200:
            assert current.problem == "'v2' was promoted but cannot be loaded; 'v1' still answers"
            point_at("v1")
        if clock == 201:
            assert current.problem is None
            point_at("v2")
        if clock == 205:
            point_at("v1")
        if clock == 206:
            point_at("nowhere")
        if clock == 210:
            assert current.problem == "the link was promoted but cannot be loaded; 'v1' still answers"
            raise EndedError

    async def watch() -> None:
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: clock)
        await current.watch()

    current = Current(tmp_path, load)
    point_at("v2")
    monkeypatch.setattr(current_module.asyncio, "sleep", sleep)
    with pytest.raises(EndedError), caplog.at_level(logging.ERROR):
        asyncio.run(watch())
    assert tried == [0.5, 1.5, 3.5, 7.5, 15.5, 31.5, 63.5, 123.5, 183.5, 201, 202, 204]
    assert len(caplog.records) == 3, "each told once, and once more after it was well"
    assert current.num_swaps == 0
