import shutil
from pathlib import Path

import pytest

from foster.bundle.files import BundleError
from foster.bundle.promotion import promote
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
