"""CIFAR files are found, fetched, checked and read, and never run."""

import hashlib
import io
import os
import pickle
import struct
import tarfile
import threading
import warnings
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from foster.data.catalogue import CATALOGUE, Published
from foster.data.cifar import LAYOUTS, load_cifar, read_batch, read_class_names
from foster.data.download import find_or_fetch
from foster.errors import DataError

CIFAR100 = LAYOUTS["cifar100"]
NAMES = ["apple", "bear", "cloud"]


def pixels(num_images: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (num_images, 3072), dtype=np.uint8)


def python2_pickle(content: dict[str, Any]) -> bytes:
    """The opcodes that Python 2 wrote in 2009: byte strings for text and numpy.core for the array."""

    def string(text: bytes) -> bytes:
        return b"T" + struct.pack("<i", len(text)) + text

    def written(value: Any) -> bytes:
        if isinstance(value, str):
            return string(value.encode())
        if isinstance(value, int):
            return b"J" + struct.pack("<i", value)
        if isinstance(value, list):
            return b"](" + b"".join(written(item) for item in value) + b"e"
        shape = b"".join(written(length) for length in value.shape) + b"\x86"
        empty = (
            b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n" + written(0) + b"\x85" + string(b"b") + b"\x87R"
        )
        dtype = b"cnumpy\ndtype\n" + string(b"u1") + written(0) + written(1) + b"\x87R("
        dtype += written(3) + string(b"|") + b"NNN" + written(-1) + written(-1) + written(0) + b"tb"
        return empty + b"(" + written(1) + shape + dtype + b"\x89" + string(value.tobytes()) + b"tb"

    items = b"".join(string(key.encode()) + written(value) for key, value in content.items())
    return b"\x80\x02}(" + items + b"u."


def small_files() -> dict[str, bytes]:
    return {
        "train": python2_pickle({"data": pixels(5), "fine_labels": [0, 1, 2, 1, 0], "batch_label": "training"}),
        "test": python2_pickle({"data": pixels(2, seed=1), "fine_labels": [2, 0]}),
        "meta": python2_pickle({"fine_label_names": NAMES, "coarse_label_names": ["things"]}),
    }


def md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def tar_of(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def archive_of(files: dict[str, bytes]) -> bytes:
    return tar_of({f"cifar-100-python/{name}": content for name, content in files.items()})


def published(archive: bytes, address: str = "http://127.0.0.1:9/cifar-100-python.tar.gz") -> Published:
    """The small files as if they were the published ones. Nothing listens on port 9."""
    sums = {name: md5(content) for name, content in small_files().items()}
    return Published(address, md5(archive), "cifar-100-python", sums)


def write(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def server() -> Iterator[tuple[str, dict[str, bytes]]]:
    """An address on this machine and the table of what it serves."""
    served: dict[str, bytes] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = served.get(self.path)
            self.send_response(200 if content is not None else 404)
            self.send_header("Content-Length", str(len(content or b"")))
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listener:
        thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{listener.server_port}", served
        listener.shutdown()
        thread.join()


def assert_small_files_are_read(source: Published, data_dir: Path) -> None:
    train, test = load_cifar(CIFAR100, source, data_dir)
    assert train.class_names == test.class_names == ("apple", "bear", "cloud")
    assert train.labels.tolist() == [0, 1, 2, 1, 0]
    assert torch.equal(train.images, torch.from_numpy(pixels(5)).reshape(5, 3, 32, 32))
    assert torch.equal(test.images, torch.from_numpy(pixels(2, seed=1)).reshape(2, 3, 32, 32))


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
    path = tmp_path / "test"
    assert str(caught.value) == (
        f"{path} is damaged or not the published file: MD5 is {md5(damaged)}, not {md5(files['test'])}"
    )


@pytest.mark.parametrize("given", [".", "cifar-100-python"])
def test_an_archive_that_lies_there_is_unpacked(tmp_path: Path, given: str) -> None:
    archive = archive_of(small_files())
    (tmp_path / "cifar-100-python.tar.gz").write_bytes(archive)
    assert_small_files_are_read(published(archive), tmp_path / given)
    assert sorted(path.name for path in (tmp_path / "cifar-100-python").iterdir()) == ["meta", "test", "train"]


def test_a_damaged_archive_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "cifar-100-python.tar.gz"
    path.write_bytes(b"not the archive")
    with pytest.raises(DataError, match=rf"{path} is damaged .* MD5 is {md5(b'not the archive')}"):
        find_or_fetch(published(archive_of(small_files())), tmp_path)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("content", [b"", b"no gzip at all", archive_of(small_files())[:300]])
def test_an_archive_that_cannot_be_read_is_one_clear_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "cifar-100-python.tar.gz").write_bytes(content)
    with pytest.raises(DataError, match="cannot unpack") as caught:
        find_or_fetch(published(content), tmp_path)
    assert "\n" not in str(caught.value)


def test_unpacking_writes_the_expected_files_and_nothing_else(tmp_path: Path) -> None:
    files = {f"cifar-100-python/{name}": content for name, content in small_files().items()}
    archive = tar_of({"../escaped": b"x", "/tmp/absolute": b"x", "cifar-100-python/file.txt~": b"x", **files})
    folder = tmp_path / "data"
    write(folder, {"cifar-100-python.tar.gz": archive})
    find_or_fetch(published(archive), folder)
    found = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert found == [
        "data/cifar-100-python.tar.gz",
        "data/cifar-100-python/meta",
        "data/cifar-100-python/test",
        "data/cifar-100-python/train",
    ]


def test_a_link_in_an_archive_is_never_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"private")
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name in small_files():
            member = tarfile.TarInfo(f"cifar-100-python/{name}")
            member.type, member.linkname = tarfile.SYMTYPE, str(secret)
            archive.addfile(member)
    folder = write(tmp_path / "data", {"cifar-100-python.tar.gz": buffer.getvalue()})
    with pytest.raises(DataError, match=r"does not hold the files cifar-100-python/train, cifar-100-python/test"):
        find_or_fetch(published(buffer.getvalue()), folder)
    assert not (folder / "cifar-100-python").exists()


def test_without_a_network_one_line_says_which_files_to_put_where(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with pytest.raises(DataError) as caught:
        load_cifar(CIFAR100, published(b""), folder)
    assert str(caught.value) == (
        "cannot download http://127.0.0.1:9/cifar-100-python.tar.gz (Connection refused); put cifar-100-python.tar.gz "
        f"into {folder}, or the files train, test, meta into {folder / 'cifar-100-python'}"
    )
    assert not folder.exists()


def test_missing_files_are_downloaded_with_progress(tmp_path: Path, server: tuple[str, dict[str, bytes]]) -> None:
    address, served = server
    archive = served["/cifar-100-python.tar.gz"] = archive_of(small_files())
    source = published(archive, f"{address}/cifar-100-python.tar.gz")
    steps: list[tuple[int, int | None]] = []
    find_or_fetch(source, tmp_path / "data", lambda received, total: steps.append((received, total)))
    assert steps[-1] == (len(archive), len(archive))
    served.clear()  # the second time, nothing is asked for
    assert_small_files_are_read(source, tmp_path / "data")


def test_a_download_with_a_wrong_checksum_leaves_nothing_behind(
    tmp_path: Path, server: tuple[str, dict[str, bytes]]
) -> None:
    address, served = server
    served["/cifar-100-python.tar.gz"] = b"a login page"
    source = published(archive_of(small_files()), f"{address}/cifar-100-python.tar.gz")
    with pytest.raises(DataError, match=rf"the download of {address}.* MD5 is {md5(b'a login page')}, not"):
        find_or_fetch(source, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_address_that_is_gone_is_reported_as_such(tmp_path: Path, server: tuple[str, dict[str, bytes]]) -> None:
    with pytest.raises(DataError, match=r"cannot download .*404.*; put cifar-100-python.tar.gz into"):
        find_or_fetch(published(b"", f"{server[0]}/cifar-100-python.tar.gz"), tmp_path)


def test_a_data_folder_that_is_a_file_is_named(tmp_path: Path, server: tuple[str, dict[str, bytes]]) -> None:
    address, served = server
    archive = served["/cifar-100-python.tar.gz"] = archive_of(small_files())
    (tmp_path / "data").write_bytes(b"a file, not a folder")
    with pytest.raises(DataError, match=f"cannot write into {tmp_path / 'data'}: File exists"):
        find_or_fetch(published(archive, f"{address}/cifar-100-python.tar.gz"), tmp_path / "data")


def test_a_data_folder_that_cannot_be_looked_into_is_named(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 300)
    with pytest.raises(DataError, match=f"cannot read {folder}: File name too long"):
        find_or_fetch(published(b""), folder)


def test_a_file_where_the_unpacked_folder_should_be_is_named(tmp_path: Path) -> None:
    archive = archive_of(small_files())
    write(tmp_path, {"cifar-100-python.tar.gz": archive, "cifar-100-python": b"a file, not a folder"})
    with pytest.raises(DataError, match=rf"cannot write into {tmp_path / 'cifar-100-python'}"):
        find_or_fetch(published(archive), tmp_path)


class Hostile:
    """Pickles itself as a call."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


def set_attributes_of(name: bytes) -> bytes:
    """BUILD on a global itself, the way to overwrite a class's attributes."""
    return b"\x80\x02c" + name + b"\nN}U\x08__init__K\x01s\x86b."


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("kind", ["os.system", "builtins.eval", "object array"])
def test_a_hostile_pickle_is_refused_and_not_run(tmp_path: Path, kind: str, nested: bool, protocol: int) -> None:
    marker = tmp_path / "marker"
    hostile: Any = {
        "os.system": Hostile(os.system, f"touch {marker}"),
        "builtins.eval": Hostile(eval, f"open({str(marker)!r}, 'w').close()"),
        "object array": np.array([Hostile(os.system, f"touch {marker}")], dtype=object),
    }[kind]
    content = {"data": pixels(1), "fine_labels": [0], "filenames": [{"a": [hostile]}]} if nested else hostile
    path = tmp_path / "train"
    path.write_bytes(pickle.dumps(content, protocol=protocol))
    with pytest.raises(DataError, match="refused") as caught:
        read_batch(path, "fine_labels", 3)
    assert "\n" not in str(caught.value)
    assert not marker.exists()
    pickle.loads(path.read_bytes())  # the test can fail: an ordinary unpickler runs it
    assert marker.exists()


def test_an_array_of_objects_is_refused_even_with_harmless_content(tmp_path: Path) -> None:
    path = tmp_path / "train"
    path.write_bytes(pickle.dumps({"data": np.array([None]), "fine_labels": [0]}, protocol=4))
    with pytest.raises(DataError, match="refused: it holds an array of 'O8', not of bytes"):
        read_batch(path, "fine_labels", 3)


@pytest.mark.parametrize("name", [b"numpy\ndtype", b"numpy\nndarray", b"numpy.core.multiarray\n_reconstruct"])
def test_a_pickle_cannot_change_what_admitted_names_stand_for(tmp_path: Path, name: bytes) -> None:
    write(tmp_path, {**small_files(), "hostile": set_attributes_of(name)})
    with pytest.raises(DataError):
        read_batch(tmp_path / "hostile", "fine_labels", 3)
    assert len(read_batch(tmp_path / "train", "fine_labels", 3).images) == 5


@pytest.mark.parametrize("protocol", [3, 4])
def test_files_written_by_a_newer_numpy_are_read_too(tmp_path: Path, protocol: int) -> None:
    path = tmp_path / "train"
    path.write_bytes(pickle.dumps({"data": pixels(4), "fine_labels": [0, 1, 2, 0]}, protocol=protocol))
    batch = read_batch(path, "fine_labels", 3)
    assert np.array_equal(batch.images.reshape(4, 3072), pixels(4))
    path.write_bytes(pickle.dumps({"data": np.asfortranarray(pixels(4)), "fine_labels": [0, 1, 2, 0]}, protocol))
    assert np.array_equal(read_batch(path, "fine_labels", 3).images, batch.images)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "Ran out of input"),
        (b"\x89PNG\r\n\x1a\n" * 20, "is not a CIFAR file"),
        (small_files()["train"][:2000], "truncated"),
        (python2_pickle({"data": pixels(1), "labels": [0]}), "it has no 'fine_labels', only data, labels"),
        (python2_pickle({"fine_labels": [0]}), "it has no 'data'"),
        (python2_pickle({"data": [1, 2], "fine_labels": [0, 1]}), "'data' has no array"),
        (python2_pickle({"data": pixels(2)[:, :48], "fine_labels": [0, 1]}), r"shape \[2, 48\], not shape \[N, 3072\]"),
        (python2_pickle({"data": pixels(2), "fine_labels": [0]}), "2 images but 1 labels"),
        (python2_pickle({"data": pixels(1), "fine_labels": [3]}), "a label lies outside 0 to 2"),
        (python2_pickle({"data": pixels(1), "fine_labels": [-1]}), "a label lies outside 0 to 2"),
        (python2_pickle({"data": pixels(1), "fine_labels": ["x"]}), "not a list of whole numbers"),
        (b"\x80\x02]q\x00.", "it holds a list, not a dictionary"),
    ],
)
def test_a_file_that_is_not_what_it_should_be_is_one_clear_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "train"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        read_batch(path, "fine_labels", 3)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_class_names_that_are_no_names_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "meta"
    path.write_bytes(python2_pickle({"fine_label_names": ["apple", 3]}))
    with pytest.raises(DataError, match="'fine_label_names' is not a list of names"):
        read_class_names(path, "fine_label_names")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"there is no file {tmp_path / 'train'}"):
        read_batch(tmp_path / "train", "fine_labels", 3)


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_the_catalogue_lists_every_file_that_is_read(name: str) -> None:
    layout, source = LAYOUTS[name], CATALOGUE[name].published
    assert source is not None
    assert set(source.files) == {*layout.train_files, *layout.test_files, layout.names_file}
    assert all(len(md5_sum) == 32 for md5_sum in (source.archive_md5, *source.files.values()))
