"""Photos as classes on a disk, made of empty files: folders, lists, and what is refused."""

from pathlib import Path

import pytest

from foster.data.photos.find import Tree, check_same_classes, read_list, read_names, read_tree
from foster.errors import DataError


def write(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


def tree_of(place: str = "here", **counts: int) -> Tree:
    names = {name: [f"{k}.jpg" for k in range(count)] for name, count in counts.items()}
    return Tree(place, dict.fromkeys(names, Path("photos")), names)


def test_a_folder_is_a_class_with_all_photos_below_it(tmp_path: Path) -> None:
    write(tmp_path, "n10/b.JPG", "n10/deep/a.png", "n10/notes.txt", "n10/.hidden.jpg", "n9/x.webp", ".git/y.jpg")
    tree = read_tree(tmp_path)
    assert dict(tree.names) == {"n9": ["x.webp"], "n10": ["b.JPG", "deep/a.png"]}
    paths, labels = tree.listed()
    assert paths == [str(tmp_path / name) for name in ("n9/x.webp", "n10/b.JPG", "n10/deep/a.png")]
    assert labels.tolist() == [0, 1, 1]
    assert len(tree) == 3
    assert tree.of(["n10", "n9"]).class_names == ("n10", "n9")
    with pytest.raises(DataError, match="class 'n11' has no photos"):
        tree.of(["n11"])


def test_only_the_wanted_folders_are_read(tmp_path: Path) -> None:
    write(tmp_path, "a/1.jpg", "b/2.jpg", "c/3.jpg")
    assert read_tree(tmp_path, ["c", "a"]).class_names == ("a", "c")


def test_a_folder_without_photos_is_named(tmp_path: Path) -> None:
    write(tmp_path, "a/1.jpg", "b/notes.txt")
    with pytest.raises(DataError, match=r"1 class folder in .* without a photo: b; remove or fill what is empty"):
        read_tree(tmp_path)
    with pytest.raises(DataError, match="holds no folders"):
        read_tree(tmp_path / "a")


def test_a_list_has_a_path_and_a_label_on_each_line(tmp_path: Path) -> None:
    lines = tmp_path / "train.txt"
    lines.write_text("# made by hand\n\nn1/my cat.jpg 10\nn2/b.png 2\nn3 3\nn1/c.jpg 10\n")
    tree = read_list(lines, tmp_path)
    assert dict(tree.names) == {"2": ["n2/b.png"], "10": ["n1/my cat.jpg", "n1/c.jpg"]}
    lines.write_text("n1/a.jpg 1\nalone.jpg\n")
    with pytest.raises(DataError, match=r"line 2 of .* is no path and label: 'alone\.jpg'"):
        read_list(lines, tmp_path)
    lines.write_text("folder 1\n")
    with pytest.raises(DataError, match="names no photos"):
        read_list(lines, tmp_path)


def test_a_subset_names_each_folder_once(tmp_path: Path) -> None:
    path = tmp_path / "subset.txt"
    path.write_text("# a few\nn2 second\nn1\n")
    assert read_names(path) == ["n2", "n1"]
    path.write_text("n2\nn1\nn2\n")
    with pytest.raises(DataError, match="'n2' stands in it twice"):
        read_names(path)
    path.write_text("\n")
    with pytest.raises(DataError, match="it is empty"):
        read_names(path)


def test_a_share_of_each_class_is_taken_apart_by_the_seed() -> None:
    whole = tree_of(few=2, many=40)
    first, second = whole.divided(0.1, seed=3)
    assert {name: len(names) for name, names in second.names.items()} == {"few": 1, "many": 4}
    for name, names in whole.names.items():
        assert sorted([*first.names[name], *second.names[name]]) == sorted(names)
    assert whole.divided(0.1, seed=3)[1].names == second.names
    assert whole.divided(0.1, seed=4)[1].names != second.names
    assert [len(part.names["few"]) for part in whole.divided(0.99, seed=3)] == [1, 1], "never all"


def test_every_class_needs_photos_to_train_on_and_to_test_on() -> None:
    check_same_classes(tree_of(a=1, b=1), tree_of(b=2, a=3))
    with pytest.raises(DataError, match="class 'c' has photos in there, but none to train on in here"):
        check_same_classes(tree_of(a=1), tree_of("there", a=1, c=1))
    with pytest.raises(DataError, match=r"1 class without a photo in there: b"):
        check_same_classes(tree_of(a=1, b=1), tree_of("there", a=1))
