"""Asking: predictions and heat maps, in this process."""

import io
from pathlib import Path

import httpx
import pytest
from PIL import Image
from servers import photo, run, service_of

import foster


def test_one_image_several_images_and_raw_bytes_are_answered_as_the_learner_does(small_bundle: Path) -> None:
    contents = [photo(0), photo(1, "JPEG", (40, 30)), photo(2, "WEBP")]
    wanted = foster.load(small_bundle, device="cpu").predict(contents, top=1)

    async def check(client: httpx.AsyncClient) -> None:
        raw = (await client.post("/predict?top=1", content=contents[0])).json()
        assert raw["bundle"]["name"] == "v1"
        assert [entry["label"] for entry in raw["predictions"][0]["top"]] == [wanted[0].label]
        assert raw["milliseconds"]["total"] >= raw["milliseconds"]["compute"] > 0
        files = [("any", (f"C:\\folder/{k}.png", content)) for k, content in enumerate(contents)]
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
        assert [entry["error"] for entry in some.json()["predictions"]] == [None, "not an image of a known format"]
        none = await client.post("/predict", content=b"no image")
        assert none.status_code == 422
        assert none.json() == {"error": "no image can be read: image: not an image of a known format"}
        empty = await client.post("/predict")
        assert (empty.status_code, "no image was sent" in empty.json()["error"]) == (400, True)

    run(service_of(small_bundle), check)


def test_unknown_is_what_the_learner_calls_unknown(small_bundle: Path) -> None:
    async def check(client: httpx.AsyncClient) -> None:
        (entry,) = (await client.post("/predict", content=photo())).json()["predictions"]
        assert entry["is_unknown"] is True
        assert entry["label"] == "unknown"
        assert (await client.get("/info")).json()["unknown_below"] == 1.0
        assert "foster_unknown_total 1.0\n" in (await client.get("/metrics")).text

    run(service_of(small_bundle, unknown_below=1.0), check)


def test_the_heat_map_lies_over_the_whole_picture(small_bundle: Path) -> None:
    async def check(client: httpx.AsyncClient) -> None:
        (best,) = (await client.post("/predict?top=1", content=photo())).json()["predictions"]
        answer = await client.post("/explain", content=photo())
        assert answer.headers["x-foster-label"] == best["label"]
        with Image.open(io.BytesIO(answer.content)) as heat:
            assert (heat.format, heat.mode) == ("PNG", "RGBA")
        for label in (await client.get("/classes")).json()["classes"]:
            assert (await client.post("/explain", params={"label": label}, content=photo())).status_code == 200
        assert (await client.post("/explain?label=dragon", content=photo())).status_code == 404
        assert (await client.post("/explain", content=b"none")).status_code == 422

    run(service_of(small_bundle), check)
