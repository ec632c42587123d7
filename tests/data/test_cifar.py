"""CIFAR files are found, checked and read, and never run."""

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_cifar import (
    NAMES,
    assert_small_files_are_read,
    md5,
    pixels,
    published,
    python2_pickle,
    read,
    small_files,
    write,
)

from foster.data.cifar import read_pickle
from foster.errors import DataError
from foster.settings.datasets import CATALOGUE, Published


@pytest.mark.parametrize("given", ["folder", "parent"])
def test_the_files_are_found_in_the_given_folder_or_below_it(tmp_path: Path, given: str) -> None:
    folder = write(tmp_path / "cifar-100-python", small_files())
    assert_small_files_are_read(published(b""), folder if given == "folder" else tmp_path)


def test_the_five_batches_of_cifar10_follow_one_another(tmp_path: Path) -> None:
    names = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
    files = {
        name: python2_pickle({"data": pixels(2, seed), "labels": [seed % 3, 0]}) for seed, name in enumerate(names)
    }
    files["batches.meta"] = python2_pickle({"label_names": NAMES, "num_vis": 3072})
    assert set(files) == set((CATALOGUE["cifar10"].published or published(b"")).files)
    source = Published("http://127.0.0.1:9/x", "", "any", {name: md5(content) for name, content in files.items()})
    train, test = read(source, write(tmp_path, files))
    assert train.labels.tolist() == [0, 0, 1, 0, 2, 0, 0, 0, 1, 0]
    expected = np.concatenate([pixels(2, seed) for seed in range(5)])
    assert torch.equal(train.images.flatten(1), torch.from_numpy(expected))
    assert test.labels.tolist() == [2, 0]


def test_a_file_with_a_wrong_checksum_is_named_with_both_sums(tmp_path: Path) -> None:
    files = small_files()
    damaged = files["test"][:-10] + bytes(10)
    write(tmp_path, {**files, "test": damaged})
    with pytest.raises(DataError) as caught:
        read(published(b""), tmp_path)
    for fact in (str(tmp_path / "test"), md5(damaged), md5(files["test"])):
        assert fact in str(caught.value)


class Hostile:
    """Pickles itself as a call."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


def set_attributes_of(name: bytes) -> bytes:
    """BUILD on a global itself, the way to overwrite a class's attributes."""
    return b"\x80\x02c" + name + b"\nN}U\x08__init__K\x01s\x86b."


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("kind", ["os.system", "builtins.eval", "object array"])
def test_a_hostile_pickle_is_refused_and_not_run(tmp_path: Path, kind: str, nested: bool) -> None:
    marker = tmp_path / "marker"
    hostile: Any = {
        "os.system": Hostile(os.system, f"touch {marker}"),
        "builtins.eval": Hostile(eval, f"open({str(marker)!r}, 'w').close()"),
        "object array": np.array([Hostile(os.system, f"touch {marker}")], dtype=object),
    }[kind]
    content = {"data": pixels(1), "fine_labels": [0], "filenames": [{"a": [hostile]}]} if nested else hostile
    path = tmp_path / "train"
    path.write_bytes(pickle.dumps(content, protocol=2))
    with pytest.raises(DataError, match="refused") as caught:
        read_pickle(path)
    assert "\n" not in str(caught.value)
    assert not marker.exists()
    pickle.loads(path.read_bytes())  # the test can fail: an ordinary unpickler runs it
    assert marker.exists()


@pytest.mark.parametrize("name", [b"numpy\ndtype", b"numpy\nndarray", b"numpy.core.multiarray\n_reconstruct"])
def test_a_pickle_cannot_change_what_admitted_names_stand_for(tmp_path: Path, name: bytes) -> None:
    write(tmp_path, {**small_files(), "hostile": set_attributes_of(name)})
    with pytest.raises(DataError):
        read_pickle(tmp_path / "hostile")
    assert len(read_pickle(tmp_path / "train")["data"]) == 5


@pytest.mark.parametrize("content", [b"", b"\x89PNG\r\n\x1a\n" * 20, small_files()["train"][:2000], b"\x80\x02]q\x00."])
def test_a_file_that_is_not_what_it_should_be_is_one_clear_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "train"
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        read_pickle(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)
