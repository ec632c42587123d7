import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from bundles import made_facts

from foster.bundle.folder import BundleError, read_manifest, write_bundle
from foster.bundle.promotion import check_promotable, promote, rollback
from foster.errors import FolderError
from foster.system.locking import locked


def make(folder: Path) -> Path:
    write_bundle(folder, made_facts(folder.name), {}, {})
    return folder


def in_use(folder: Path) -> str:
    return read_manifest(folder / "current").classes[0]


def test_the_link_moves_forward_and_back(tmp_path: Path) -> None:
    v1, v2, v3 = (make(tmp_path / name) for name in ("v1", "v2", "v3"))
    assert promote(v1).before is None
    assert in_use(tmp_path) == "v1"
    promote(v2)
    moved = promote(v3)
    assert (moved.before, moved.after) == ("v2", "v3")
    assert in_use(tmp_path) == "v3"
    assert rollback(tmp_path / "current").after == "v2"
    assert in_use(tmp_path) == "v2"
    with pytest.raises(FolderError, match="'v2'"):
        rollback(tmp_path)
    assert in_use(tmp_path) == "v2", "one step, and never back to the rejected one"


def test_the_link_is_relative_so_that_the_folder_can_be_moved(tmp_path: Path) -> None:
    promote(make(tmp_path / "bundles" / "v1"))
    (tmp_path / "bundles").rename(tmp_path / "moved")
    assert in_use(tmp_path / "moved") == "v1"


def test_promoting_what_is_in_use_changes_nothing(tmp_path: Path) -> None:
    promote(make(tmp_path / "v1"))
    promote(make(tmp_path / "v2"))
    assert promote(tmp_path / "current").after == "v2"
    assert rollback(tmp_path).after == "v1"


def test_a_bundle_can_be_promoted_from_inside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(make(tmp_path / "v1"))
    promote(Path())
    assert in_use(tmp_path) == "v1"


def test_a_bundle_behind_a_linked_folder_is_promoted_beside_itself(tmp_path: Path) -> None:
    make(tmp_path / "real" / "v1")
    (tmp_path / "shelf").symlink_to("real")
    assert promote(tmp_path / "shelf" / "v1").link == tmp_path / "shelf" / "current"
    assert in_use(tmp_path / "real") == "v1"


def test_only_bundles_are_promoted_and_only_links_are_moved(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="missing"):
        promote(tmp_path / "missing")
    (tmp_path / "folder").mkdir()
    with pytest.raises(BundleError, match="folder"):
        promote(tmp_path / "folder")
    with pytest.raises(FolderError, match="foster promote"):
        rollback(tmp_path)
    (tmp_path / "current").mkdir()
    with pytest.raises(FolderError, match="current'"):
        promote(make(tmp_path / "v1"))
    with pytest.raises(FolderError, match="'current'"):
        promote(make(tmp_path / "other" / "current"))


@pytest.mark.parametrize("move", [lambda place: promote(place / "v3"), rollback])
def test_the_link_is_moved_by_one_process_at_a_time(move: Callable[[Path], object], tmp_path: Path) -> None:
    v1, v2, _ = (make(tmp_path / name) for name in ("v1", "v2", "v3"))
    promote(v1)
    promote(v2)
    with locked(tmp_path, ".current.lock"), pytest.raises(FolderError, match=f"process {os.getpid()} on"):
        move(tmp_path)
    assert in_use(tmp_path) == "v2"
    move(tmp_path)
    assert in_use(tmp_path) != "v2"


def test_what_cannot_be_promoted_is_known_before_it_is_written(tmp_path: Path) -> None:
    check_promotable(tmp_path / "not yet" / "v1")
    promote(make(tmp_path / "v1"))
    check_promotable(tmp_path / "v2")
    with pytest.raises(FolderError, match="'current'"):
        check_promotable(tmp_path / "current")
    (tmp_path / "other" / "current").mkdir(parents=True)
    with pytest.raises(FolderError, match="current'"):
        check_promotable(tmp_path / "other" / "v1")


def cut_off(patch: pytest.MonkeyPatch, where: str, num_whole: int) -> None:
    """Let `num_whole` calls through, and interrupt the next one."""
    whole = getattr(Path, where)
    calls = iter(range(num_whole))

    def called(*given: Any, **options: Any) -> Any:
        if next(calls, None) is None:
            raise KeyboardInterrupt
        return whole(*given, **options)

    patch.setattr(Path, where, called)


@pytest.mark.parametrize("where", ["symlink_to", "replace", "unlink"])
@pytest.mark.parametrize("num_whole", [0, 1, 2])
def test_a_promotion_or_rollback_that_is_cut_off_anywhere_is_completed_by_the_same_command(
    where: str, num_whole: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("v1", "v2"):
        promote(make(tmp_path / name))
    v3 = make(tmp_path / "v3")
    for move, before, after in (
        (lambda: promote(v3), "v2", "v3"),
        (lambda: rollback(tmp_path), "v3", "v2"),
    ):
        with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
            cut_off(patch, where, num_whole)
            move()
        if in_use(tmp_path) == before:
            move()
        assert in_use(tmp_path) == after
    with pytest.raises(FolderError):
        rollback(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} - {"previous"} == {"v1", "v2", "v3", "current"}


def test_a_bundle_whose_files_are_damaged_is_neither_promoted_nor_rolled_back_to(tmp_path: Path) -> None:
    v1, v2 = make(tmp_path / "v1"), make(tmp_path / "v2")
    promote(v1)
    weights = (v2 / "network.safetensors").read_bytes()
    (v2 / "network.safetensors").write_bytes(weights[:-1])
    with pytest.raises(BundleError, match=r"network\.safetensors"):
        promote(v2)
    assert in_use(tmp_path) == "v1"
    (v2 / "network.safetensors").write_bytes(weights)
    promote(v2)
    (v1 / "labels.txt").write_text("other\n", encoding="utf-8")
    with pytest.raises(FolderError, match=r"'v1'.*labels\.txt"):
        rollback(tmp_path)
    assert in_use(tmp_path) == "v2"
