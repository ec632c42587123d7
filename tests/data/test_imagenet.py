"""ImageNet's published layouts, made of empty files: which photos belong to which class, and what is said otherwise."""

from pathlib import Path

import numpy as np
import pytest

from foster.data.imagenet import class_folders, divided, imagenet_photos, own_photos, subset_names, task_folders
from foster.data.sources import load
from foster.errors import DataError
from foster.settings.datasets import DatasetSettings, PhotoSettings

WNIDS = [f"n{k:08d}" for k in range(1000)]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("imagenet")
    for wnid in WNIDS:
        class_folder = folder / "train" / wnid
        class_folder.mkdir(parents=True)
        (class_folder / f"{wnid}_1.JPEG").touch()
    (folder / "val").mkdir()
    for k in range(1000):
        (folder / "val" / f"ILSVRC2012_val_{k + 1:08d}.JPEG").touch()
    return folder


def test_the_subset_is_the_first_hundred_of_the_1993_permutation() -> None:
    order = np.random.RandomState(1993).permutation(1000)
    assert order[:10].tolist() == [54, 7, 894, 512, 126, 337, 988, 11, 284, 493]
    assert subset_names(WNIDS) == sorted(WNIDS[k] for k in order[:100])


def test_a_flat_validation_folder_is_sorted_by_a_published_list(root: Path) -> None:
    with pytest.raises(DataError, match=r"LOC_val_solution\.csv"):
        imagenet_photos(root, is_subset=False)
    rows = [f"ILSVRC2012_val_{k + 1:08d},{WNIDS[(k * 7) % 1000]} 1 2 3 4" for k in range(1000)]
    listed = root / "val" / "LOC_val_solution.csv"  # which is no photo itself
    listed.write_text("\n".join(["ImageId,PredictionString", *reversed(rows)]))
    train, test = imagenet_photos(root, is_subset=False)
    listed.unlink()
    assert list(train) == list(test) == WNIDS
    assert test[WNIDS[14]] == [str(root / "val" / "ILSVRC2012_val_00000003.JPEG")]


def test_the_ground_truth_of_the_development_kit_needs_its_table(root: Path) -> None:
    from scipy.io import savemat

    (root / "data").mkdir()
    numbers = [(k * 3) % 1000 + 1 for k in range(1000)]
    (root / "data" / "ILSVRC2012_validation_ground_truth.txt").write_text("\n".join(map(str, numbers)))
    with pytest.raises(DataError, match=r"meta\.mat"):
        imagenet_photos(root, is_subset=True)
    kind = [("ILSVRC2012_ID", "i4"), ("WNID", "U9")]
    backwards = np.array([(k + 1, WNIDS[999 - k]) for k in reversed(range(1000))], dtype=kind)
    savemat(str(root / "data" / "meta.mat"), {"synsets": backwards})
    _, test = imagenet_photos(root, is_subset=False)
    assert test[WNIDS[999]] == [str(root / "val" / "ILSVRC2012_val_00000001.JPEG")]
    assert test[WNIDS[996]] == [str(root / "val" / "ILSVRC2012_val_00000002.JPEG")]
    _, subset = imagenet_photos(root, is_subset=True)
    assert list(subset) == subset_names(WNIDS)


def test_a_class_that_is_missing_among_the_validation_folders_is_named(tmp_path: Path) -> None:
    for part, names in (("train", WNIDS[:100]), ("val", WNIDS[1:100])):
        for wnid in names:
            (tmp_path / part / wnid).mkdir(parents=True)
            (tmp_path / part / wnid / "1.JPEG").touch()
    with pytest.raises(DataError, match=f"1 of 100 .*val': {WNIDS[0]}"):
        imagenet_photos(tmp_path, is_subset=True)
    (tmp_path / "val").rename(tmp_path / "test")
    with pytest.raises(DataError, match="val'"):
        imagenet_photos(tmp_path, is_subset=True)


def test_where_imagenet_is_missing_one_line_says_what_belongs_where(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"train/WNID/\*\.JPEG .*data=FOLDER"):
        imagenet_photos(tmp_path, is_subset=False)
    (tmp_path / "train" / "n1").mkdir(parents=True)
    with pytest.raises(DataError, match=r"1 class folders.* 1,000"):
        imagenet_photos(tmp_path, is_subset=False)


def write(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


def test_a_folder_is_a_class_with_all_photos_below_it(tmp_path: Path) -> None:
    names = ["b.JPG", *(f"c{k}.jpg" for k in range(9)), "deep/a.png", "else/a.png"]
    hidden = ("n10/notes.txt", "n10/.hidden.jpg", "n10/.thumbnails/b.jpg", ".git/y.jpg")
    write(tmp_path, *(f"n10/{name}" for name in reversed(names)), *hidden, "n9/x.webp")
    found = class_folders(tmp_path)
    assert list(found) == ["n9", "n10"]
    assert found["n10"] == [str(tmp_path / "n10" / name) for name in names]


def test_tasks_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    write(tmp_path, *(f"tasks/{task}/a/1.jpg" for task in (10, 2, 1)))
    assert [folder.name for folder in task_folders(tmp_path)] == ["1", "2", "10"]


def test_two_folders_of_one_class_name_are_one_class(tmp_path: Path) -> None:
    write(tmp_path, "cat/1.jpg", "cat /2.jpg", "dog/3.jpg")
    found = class_folders(tmp_path)
    assert {name: sorted(Path(path).name for path in paths) for name, paths in found.items()} == {
        "cat": ["1.jpg", "2.jpg"],
        "dog": ["3.jpg"],
    }


def test_a_folder_without_photos_is_named(tmp_path: Path) -> None:
    write(tmp_path, "a/1.jpg", "b/notes.txt")
    with pytest.raises(DataError, match=": b;"):
        class_folders(tmp_path)
    with pytest.raises(DataError, match="/a'"):
        class_folders(tmp_path / "a")


def test_training_and_test_photos_are_of_the_same_classes_in_the_same_order(tmp_path: Path) -> None:
    write(tmp_path, "train/b/1.jpg", "train/a/1.jpg")
    with pytest.raises(DataError, match=r"photos\.test_share=0\.2"):
        own_photos(tmp_path, 0.0, seed=1)
    write(tmp_path, "test/a/2.jpg")
    with pytest.raises(DataError, match=r"no photos of b in .*test'"):
        own_photos(tmp_path, 0.0, seed=1)
    write(tmp_path, "test/b/2.jpg", "test/c/2.jpg")
    with pytest.raises(DataError, match=r"no photos of c in .*train'"):
        own_photos(tmp_path, 0.0, seed=1)
    write(tmp_path, "train/c/1.jpg")
    train, test = own_photos(tmp_path, 0.0, seed=1)
    assert list(train) == list(test) == ["a", "b", "c"]
    assert test["b"] == [str(tmp_path / "test" / "b" / "2.jpg")]
    write(tmp_path, *(f"val/{name}/3.jpg" for name in "abc"))
    assert own_photos(tmp_path, 0.0, seed=1) == (train, test), "test photos rather than photos for validation"


def test_a_share_of_each_class_is_taken_apart_by_the_seed() -> None:
    whole = {name: [f"{k}.jpg" for k in range(count)] for name, count in (("few", 2), ("many", 40))}
    first, second = divided(whole, 0.1, seed=3)
    assert {name: len(paths) for name, paths in second.items()} == {"few": 1, "many": 4}
    for name, paths in whole.items():
        assert sorted([*first[name], *second[name]]) == sorted(paths)
    assert divided(whole, 0.1, seed=3)[1] == second
    assert divided(whole, 0.1, seed=4)[1] != second
    assert [len(part["few"]) for part in divided(whole, 0.99, seed=3)] == [1, 1], "never all"


def test_one_tree_is_divided_by_the_seed_of_the_run(tmp_path: Path) -> None:
    write(tmp_path, *(f"{name}/{k}.jpg" for name in "ab" for k in range(8)))

    def photos_to_test(seed: int) -> list[str]:
        settings = DatasetSettings(data_dir=tmp_path, photos=PhotoSettings(test_share=0.5), seed=seed)
        return list(load("folder", settings).test.stack.stores[0].items)

    assert photos_to_test(1) == photos_to_test(1)
    assert photos_to_test(1) != photos_to_test(2)
