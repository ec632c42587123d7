"""CIFAR files are found, checked and read."""

import dataclasses
import os
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_cifar import (
    CIFAR100,
    NAMES,
    assert_small_files_are_read,
    md5,
    pixels,
    published,
    python2_pickle,
    small_files,
    write,
)

from foster.data.cifar import LAYOUTS, load_cifar, survey
from foster.errors import DataError
from foster.settings.datasets import CATALOGUE, Asked, Published


@pytest.mark.parametrize("given", ["folder", "parent"])
def test_the_files_are_found_in_the_given_folder_or_below_it(tmp_path: Path, given: str) -> None:
    folder = write(tmp_path / "cifar-100-python", small_files())
    assert_small_files_are_read(published(b""), folder if given == "folder" else tmp_path)


def test_loading_warns_about_nothing_and_gives_writable_tensors(tmp_path: Path) -> None:
    write(tmp_path, small_files())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train, _ = load_cifar(CIFAR100, published(b""), tmp_path)
    train.images[0] = 0  # would be undefined behaviour, with a warning above, on a view of the file's bytes


def test_the_five_batches_of_cifar10_follow_one_another(tmp_path: Path) -> None:
    layout = LAYOUTS["cifar10"]
    files = {
        name: python2_pickle({"data": pixels(2, seed), "labels": [seed % 3, 0]})
        for seed, name in enumerate((*layout.train_files, *layout.test_files))
    }
    files["batches.meta"] = python2_pickle({"label_names": NAMES, "num_vis": 3072})
    assert set(files) == set((CATALOGUE["cifar10"].published or published(b"")).files)
    source = Published("http://127.0.0.1:9/x", "", "any", {name: md5(content) for name, content in files.items()})
    train, test = load_cifar(layout, source, write(tmp_path, files))
    assert train.labels.tolist() == [0, 0, 1, 0, 2, 0, 0, 0, 1, 0]
    expected = np.concatenate([pixels(2, seed) for seed in range(5)])
    assert torch.equal(train.images.flatten(1), torch.from_numpy(expected))
    assert test.labels.tolist() == [2, 0]


def test_a_file_with_a_wrong_checksum_is_named_with_both_sums(tmp_path: Path) -> None:
    files = small_files()
    damaged = files["test"][:-10] + bytes(10)
    write(tmp_path, {**files, "test": damaged})
    with pytest.raises(DataError) as caught:
        load_cifar(CIFAR100, published(b""), tmp_path)
    for fact in (str(tmp_path / "test"), md5(damaged), md5(files["test"])):
        assert fact in str(caught.value)


class Hostile:
    """Pickles itself as a call."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.marker}",)


def test_a_file_that_was_not_published_is_not_unpickled(tmp_path: Path) -> None:
    marker, content = tmp_path / "marker", pickle.dumps(Hostile(tmp_path / "marker"))
    for name in small_files():
        folder = write(tmp_path / name, {**small_files(), name: content})
        with pytest.raises(DataError, match=name):
            load_cifar(CIFAR100, published(b""), folder)
        facts = dataclasses.replace(CATALOGUE["cifar100"], published=published(b""))
        if name == "meta":
            with pytest.raises(DataError, match=name):
                survey(facts, Asked(data_dir=folder))
    assert not marker.exists()
    pickle.loads(content)  # the test can fail
    assert marker.exists()


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_the_catalogue_lists_every_file_that_is_read(name: str) -> None:
    layout, source = LAYOUTS[name], CATALOGUE[name].published
    assert source is not None
    assert set(source.files) == {*layout.train_files, *layout.test_files, layout.names_file}
    assert all(len(md5_sum) == 32 for md5_sum in (source.archive_md5, *source.files.values()))
