import io
import shutil
from pathlib import Path

from PIL import Image
from servers import photo

from foster.serving.feedback import FeedbackFolder
from foster.serving.to_label import PhotosToLabel, preview


def queue(folder: Path, num_photos: int) -> Path:
    folder.mkdir()
    for k in range(num_photos):
        (folder / f"{k + 1}-photo.png").write_bytes(photo(k))
    return folder


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


def test_a_file_that_becomes_another_photo_waits_as_that_one(tmp_path: Path) -> None:
    folder, feedback = queue(tmp_path / "queue", 1), FeedbackFolder(tmp_path / "feedback")
    waiting = PhotosToLabel(folder, feedback)
    feedback.store(photo(0), "cat")
    assert waiting.left() == []
    (folder / "1-photo.png").write_bytes(photo(7) + b" ")
    assert [waiting.content(entry.photo) for entry in waiting.left()] == [photo(7) + b" "]


def test_a_preview_is_small_and_upright() -> None:
    file = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6  # lies on its side
    Image.new("RGB", (4000, 1000), "red").save(file, "TIFF", exif=exif)
    with Image.open(io.BytesIO(preview(file.getvalue()))) as shown:
        assert shown.format == "JPEG"
        assert shown.size == (320, 1280)
