"""What the routes answer, from photos of any form."""

import asyncio
import io
from pathlib import Path

import httpx
import pytest
from PIL import Image, UnidentifiedImageError
from servers import client_of, photo, queue, run, service_of

import foster
from foster.data.photos.decode import REASONS
from foster.serving.routes import MOST_FILES


def test_one_image_several_images_and_raw_bytes_are_answered_as_the_learner_does(small_bundle: Path) -> None:
    contents = [photo(0), photo(1, "JPEG", (40, 30)), photo(2, "WEBP")]
    wanted = foster.load(small_bundle, device="cpu").predict(contents, top=1)

    async def check(client: httpx.AsyncClient) -> None:
        raw = (await client.post("/predict?top=1", content=contents[0])).json()
        assert raw["bundle"]["name"] == "v1"
        assert [entry["label"] for entry in raw["predictions"][0]["top"]] == [wanted[0].label]
        files = [("any", (f"{k}.png", content)) for k, content in enumerate(contents)]
        answer = (await client.post("/predict", files=files)).json()
        assert [entry["image"] for entry in answer["predictions"]] == ["0.png", "1.png", "2.png"]
        for entry, expected in zip(answer["predictions"], wanted, strict=True):
            assert entry["label"] == expected.label
            assert entry["confidence"] == pytest.approx(expected.confidence, abs=1e-4)
            assert sum(part["probability"] for part in entry["top"]) == pytest.approx(1, abs=1e-4)

    run(service_of(small_bundle), check)


def test_what_cannot_be_read_is_told_by_image_and_is_422_only_where_nothing_can(small_bundle: Path) -> None:
    async def check(client: httpx.AsyncClient) -> None:
        some = await client.post("/predict", files=[("a", ("good.png", photo())), ("b", ("bad.png", b"no image"))])
        assert some.status_code == 200
        assert [entry["error"] for entry in some.json()["predictions"]] == [None, REASONS[UnidentifiedImageError]]
        none = await client.post("/predict", content=b"no image")
        assert none.status_code == 422
        assert none.json()["error"].endswith(REASONS[UnidentifiedImageError])
        empty = await client.post("/predict")
        assert (empty.status_code, "no image was sent" in empty.json()["error"]) == (400, True)
        too_many = await client.post("/predict", files=[("f", ("a.png", b"1"))] * (MOST_FILES + 1))
        assert (too_many.status_code, str(MOST_FILES) in too_many.json()["error"]) == (400, True)

    run(service_of(small_bundle), check)


def test_unknown_is_what_the_learner_calls_unknown(small_bundle: Path) -> None:
    async def check(client: httpx.AsyncClient) -> None:
        (entry,) = (await client.post("/predict", content=photo())).json()["predictions"]
        assert entry["is_unknown"] is True
        assert entry["label"] == "unknown"
        assert (await client.get("/info")).json()["unknown_below"] == 1.0
        metrics = (await client.get("/metrics")).text
        assert all(f"foster_{name}_total 1.0\n" in metrics for name in ("images", "unknown"))

    run(service_of(small_bundle, unknown_below=1.0), check)


def test_the_heat_map_lies_over_the_whole_picture(small_bundle: Path) -> None:
    async def check(client: httpx.AsyncClient) -> None:
        (best,) = (await client.post("/predict?top=1", content=photo())).json()["predictions"]
        answer = await client.post("/explain", content=photo())
        assert answer.headers["x-foster-label"] == best["label"]
        with Image.open(io.BytesIO(answer.content)) as heat:
            assert (heat.format, heat.mode, heat.size) == ("PNG", "RGBA", (8, 8))
            assert heat.getchannel("A").getextrema()[0] >= 60
        maps = set()
        for label in (await client.get("/classes")).json()["classes"]:
            of_label = await client.post("/explain", params={"label": label}, content=photo())
            assert of_label.status_code == 200
            maps.add(of_label.content)
        assert len(maps) > 1, "each class has its own"
        assert (await client.post("/explain?label=dragon", content=photo())).status_code == 404
        assert (await client.post("/explain", content=b"none")).status_code == 422

    run(service_of(small_bundle), check)


def test_nothing_of_a_request_is_kept_without_feedback(bundle: Path, tmp_path: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}

    async def check(client: httpx.AsyncClient) -> None:
        large = photo(1, "BMP", (900, 900))  # more than what form readers keep in memory by default
        assert (await client.post("/predict", files={"file": large})).status_code == 200
        assert (await client.post("/feedback", files={"file": photo()}, data={"label": "a"})).status_code == 404
        assert (await client.get("/info")).json()["takes_feedback"] is False

    run(service_of(bundle), check)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


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
            assert len((await client.get("/to-label")).json()["photos"]) == 1
            assert (await client.get("/info")).json()["num_to_label"] == 1
            assert (await client.delete(f"/feedback/{stored.json()['photo']}")).status_code == 204
            assert len((await client.get("/to-label")).json()["photos"]) == 2
            for label in ("../x", " unknown "):
                assert (await client.put(path, json={"label": label})).status_code == 422
                answer = await client.post("/feedback", files={"file": photo()}, data={"label": label})
                assert answer.status_code == 422
            cut = await client.post("/feedback", files={"file": photo()[:-30]}, data={"label": "owl"})
            assert cut.status_code == 422, "it cannot be learned"
            assert list(feedback.iterdir()) == []
            assert (await client.get("/to-label/nothing")).status_code == 404

    asyncio.run(check())
    assert sorted(path.name for path in folder.iterdir()) == ["1-photo.png", "2-photo.png"], "the queue is not changed"
