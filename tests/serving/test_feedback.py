import io
import shutil
from pathlib import Path

import pytest
from PIL import Image
from servers import photo, queue

import foster
from foster.data.photos.decode import MAX_FILE_BYTES
from foster.data.photos.find import find_photos, folder_name
from foster.errors import DataError, FolderError
from foster.serving import feedback as feedback_module
from foster.serving.feedback import FeedbackFolder, PhotosToLabel, preview
from foster.system.files import read_limited


def files_in(folder: Path) -> dict[str, list[str]]:
    return {path.name: sorted(file.name for file in path.iterdir()) for path in folder.iterdir()}


def test_the_same_photo_is_one_file_and_another_label_moves_it(tmp_path: Path) -> None:
    store = FeedbackFolder(tmp_path / "feedback")
    first = store.store(photo(), "cat")
    assert (first.label, first.before) == ("cat", None)
    assert store.store(photo(), " cat ") == first.model_copy(update={"before": "cat"})
    moved = store.store(photo(), "dog")
    assert moved == first.model_copy(update={"label": "dog", "before": "cat"})
    assert files_in(tmp_path / "feedback") == {"dog": [first.photo]}
    assert (tmp_path / "feedback" / "dog" / first.photo).read_bytes() == photo()
    assert store.photos() == {"dog": [first.photo]}
    assert store.remove(first.photo)
    assert not store.remove(first.photo)
    assert files_in(tmp_path / "feedback") == {}


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "TIFF"])
def test_every_format_gets_an_ending_that_learn_looks_at(tmp_path: Path, kind: str) -> None:
    stored = FeedbackFolder(tmp_path).store(photo(1, kind), "cat")
    found = find_photos(tmp_path)
    assert [Path(str(item)).name for item in found.items] == [stored.photo]


@pytest.mark.parametrize(
    "label",
    ["", "..", "../x", "a\\b", "/etc", ".hidden", "a\x00b", "a\nb", "\ud800", "ü" * 200],
)
def test_a_name_that_could_leave_the_folder_or_hide_in_it_is_refused(tmp_path: Path, label: str) -> None:
    store = FeedbackFolder(tmp_path / "feedback")
    with pytest.raises(DataError):
        store.store(photo(), label)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("label", ["日本の猫", "-rf", "50 %"])
def test_any_other_name_becomes_a_class_of_exactly_that_name(tmp_path: Path, label: str) -> None:
    FeedbackFolder(tmp_path).store(photo(), label)
    assert find_photos(tmp_path).class_names == (label,)
    assert folder_name(f" {label}\u0020", "label") == label


@pytest.mark.parametrize("name", ["../../x.png", "x.png", "0123456789abcdef.png/../../../x.png"])
def test_only_names_of_its_own_are_removed(tmp_path: Path, name: str) -> None:
    (tmp_path / "x.png").write_bytes(photo())
    (tmp_path / "feedback" / "cat" / "0123456789abcdef.png").mkdir(parents=True)
    assert not FeedbackFolder(tmp_path / "feedback").remove(name)
    assert (tmp_path / "x.png").exists()


def test_the_owner_may_move_all_of_it_away_at_any_time(tmp_path: Path) -> None:
    store = FeedbackFolder(tmp_path / "feedback")
    store.store(photo(), "cat")
    (tmp_path / "feedback").rename(tmp_path / "learned")
    assert store.photos() == {}
    assert store.store(photo(), "dog").before is None
    assert list(store.photos()) == ["dog"]


def test_a_folder_that_cannot_be_made_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FolderError, match="cannot use"):
        FeedbackFolder(tmp_path / "file" / "feedback")


def test_a_class_that_cannot_be_written_costs_nothing_that_is_there(tmp_path: Path) -> None:
    store = FeedbackFolder(tmp_path)
    stored = store.store(photo(), "cat")
    (tmp_path / "dog").touch()
    for content in (photo(), photo(1)):
        with pytest.raises(FolderError):
            store.store(content, "dog")
    assert store.photos() == {"cat": [stored.photo]}


def test_learn_takes_the_folder_as_it_is(small_bundle: Path, tmp_path: Path) -> None:
    store = FeedbackFolder(tmp_path / "feedback")
    known = foster.load(small_bundle, device="cpu")
    for seed in range(6):
        store.store(photo(seed), known.class_names[0] if seed < 3 else "owl")
    report = known.learn(tmp_path / "feedback", validation_share=0)
    assert report.new_classes == ("owl",)
    assert dict(report.more_of) == {known.class_names[0]: 3}
    assert report.passed_over == {}


def test_photos_wait_in_the_order_of_their_names_until_they_have_a_label(tmp_path: Path) -> None:
    folder, feedback = queue(tmp_path / "queue", 11), FeedbackFolder(tmp_path / "feedback")
    (folder / "5-photo.png").write_bytes(b"broken")
    shutil.copyfile(folder / "2-photo.png", folder / "12-again.png")
    waiting = PhotosToLabel(folder, feedback)
    assert [entry.name for entry in waiting.left()] == [f"{k}-photo.png" for k in (1, 2, 3, 4, 6, 7, 8, 9, 10, 11)]
    feedback.store(photo(0), "cat")
    assert [entry.name for entry in waiting.left()][:2] == ["2-photo.png", "3-photo.png"]
    assert len(waiting.all()) == 10
    (folder / "5-photo.png").write_bytes(photo(50))  # mended
    assert len(waiting.all()) == 11
    assert waiting.content(waiting.left()[0].photo) == photo(1)
    assert waiting.content("../secret") is None


def test_a_preview_is_small_and_upright() -> None:
    file = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6  # lies on its side
    Image.new("RGB", (4000, 1000), "red").save(file, "TIFF", exif=exif)
    with Image.open(io.BytesIO(preview(file.getvalue()))) as shown:
        assert shown.format == "JPEG"
        assert shown.size == (320, 1280)


def test_a_file_that_cannot_be_read_is_looked_at_once_and_a_huge_one_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, opened = queue(tmp_path / "queue", 1), list[str]()
    (folder / "broken.png").write_bytes(b"broken")
    with (folder / "huge.png").open("wb") as file:
        file.write(photo())
        file.truncate(MAX_FILE_BYTES + 1)  # a hole: it takes no room

    def read(path: Path, max_bytes: int) -> bytes:
        opened.append(path.name)
        return read_limited(path, max_bytes)

    monkeypatch.setattr(feedback_module, "read_limited", read)
    waiting = PhotosToLabel(folder, FeedbackFolder(tmp_path / "feedback"))
    for _ in range(3):
        assert [path.name for path in waiting.all().values()] == ["1-photo.png"]
    assert sorted(opened) == ["1-photo.png", "broken.png", "huge.png"]
