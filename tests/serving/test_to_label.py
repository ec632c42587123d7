import asyncio
import io
import shutil
from pathlib import Path

from PIL import Image
from servers import client_of, photo, service_of

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


def test_a_photo_is_shown_predicted_labelled_and_taken_back(small_bundle: Path, tmp_path: Path) -> None:
    folder, feedback = queue(tmp_path / "queue", 2), tmp_path / "feedback"

    async def check() -> None:
        async with client_of(service_of(small_bundle, feedback=feedback, to_label=folder)) as client:
            listed = (await client.get("/to-label")).json()
            assert [entry["name"] for entry in listed["photos"]] == ["1-photo.png", "2-photo.png"]
            path = f"/to-label/{listed['photos'][0]['photo']}"
            shown = await client.get(path)
            assert shown.headers["content-type"] == "image/jpeg"
            assert (await client.get(f"{path}/prediction")).json()["top"]
            stored = await client.put(path, json={"label": "owl"})
            assert stored.json() == {"photo": listed["photos"][0]["photo"], "label": "owl", "before": None}
            assert (feedback / "owl" / stored.json()["photo"]).read_bytes() == photo(0)
            again = (await client.get("/to-label")).json()
            assert (len(again["photos"]), again["num_labelled"]) == (1, 1)
            assert (await client.get("/info")).json()["num_to_label"] == 1
            assert (await client.delete(f"/feedback/{stored.json()['photo']}")).status_code == 204
            assert len((await client.get("/to-label")).json()["photos"]) == 2
            assert (await client.put(path, json={"label": "../x"})).status_code == 422
            assert (await client.get("/to-label/nothing")).status_code == 404

    asyncio.run(check())
    assert sorted(path.name for path in folder.iterdir()) == ["1-photo.png", "2-photo.png"], "the queue is not changed"


def test_a_preview_is_small_and_upright() -> None:
    file = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6  # lies on its side
    Image.new("RGB", (4000, 1000), "red").save(file, "TIFF", exif=exif)
    with Image.open(io.BytesIO(preview(file.getvalue()))) as shown:
        assert shown.format == "JPEG"
        assert shown.size == (320, 1280)
