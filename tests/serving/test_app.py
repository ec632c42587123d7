"""All routes, in this process."""

import asyncio
import io
import random
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
import torch
from PIL import Image
from servers import client_of, photo, service_of

import foster
from foster.serving.served import Served
from foster.serving.service import Service

Check = Callable[[httpx.AsyncClient], Awaitable[None]]


def run(service: Service, check: Check) -> None:
    async def checked() -> None:
        async with client_of(service) as client:
            await check(client)

    asyncio.run(checked())


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
        assert "foster_unknown_total 1\n" in (await client.get("/metrics")).text

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


def test_a_full_queue_refuses_at_once_and_takes_again_when_there_is_room(
    small_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_released = threading.Event()
    answers = Served.answers

    def slow_answers(served: Served, images: torch.Tensor) -> Any:
        assert is_released.wait(30)
        return answers(served, images)

    service = service_of(small_bundle, max_waiting=3)
    monkeypatch.setattr(Served, "answers", slow_answers)

    async def check(client: httpx.AsyncClient) -> None:
        waiting = [asyncio.create_task(client.post("/predict", content=photo(k))) for k in range(3)]
        while service.num_in_work < 3:
            await asyncio.sleep(0.001)
        refused = await client.post("/predict", content=photo())
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert (await client.get("/health")).status_code == 200
        is_released.set()
        assert [(await task).status_code for task in waiting] == [200, 200, 200]
        assert (await client.post("/predict", content=photo())).status_code == 200
        many = [("file", (f"{k}.png", photo())) for k in range(4)]
        assert (await client.post("/predict", files=many)).status_code == 413

    run(service, check)


def test_an_answer_that_takes_too_long_is_a_503_and_the_next_one_is_not(
    small_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_released = threading.Event()
    answers = Served.answers

    def slow_answers(served: Served, images: torch.Tensor) -> Any:
        assert is_released.wait(30)
        return answers(served, images)

    service = service_of(small_bundle, timeout=0.2)
    monkeypatch.setattr(Served, "answers", slow_answers)

    async def check(client: httpx.AsyncClient) -> None:
        late = await client.post("/predict", content=photo())
        assert (late.status_code, late.json()["error"]) == (503, "no answer within the time limit; try again")
        is_released.set()
        monkeypatch.setattr(Served, "answers", answers)
        statuses = [(await client.post("/predict", content=photo())).status_code for _ in range(3)]
        assert 200 in statuses
        assert service.num_in_work == 0

    run(service, check)


def test_what_the_device_cannot_do_is_a_503_without_a_word_about_why(
    small_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = service_of(small_bundle)

    def broken(served: Served, images: torch.Tensor) -> Any:
        raise RuntimeError("/secret/place")

    monkeypatch.setattr(Served, "answers", broken)

    async def check(client: httpx.AsyncClient) -> None:
        answer = await client.post("/predict", content=photo())
        assert answer.status_code == 503
        assert "secret" not in answer.text
        assert (await client.get("/health")).status_code == 200

    run(service, check)


def mutated(seed: int) -> bytes:
    """An image file with some bytes changed, cut out or cut off."""
    chance = random.Random(seed)
    kind = chance.choice(["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM"])
    content = bytearray(photo(seed % 5, kind))
    for _ in range(chance.randint(1, 4)):
        position = chance.randrange(len(content)) if content else 0
        kind_of_change = chance.random()
        if kind_of_change < 0.8 and content:
            content[position] = chance.randrange(256)
        elif kind_of_change < 0.9:
            del content[position : position + chance.randint(1, 30)]
        else:
            del content[position:]
    return bytes(content)


def test_a_thousand_mutated_images_never_make_it_fail(small_bundle: Path) -> None:
    async def check(client: httpx.AsyncClient) -> None:
        num_read = 0
        for first in range(0, 960, 40):
            files = [("file", (f"{k}", mutated(k))) for k in range(first, first + 40)]
            answer = await client.post("/predict", files=files)
            assert answer.status_code in (200, 422), answer.text
            num_read += sum(not entry["error"] for entry in answer.json().get("predictions", []))
        for k in range(960, 1000):
            for path in ("/predict", "/explain"):
                assert (await client.post(path, content=mutated(k))).status_code in (200, 400, 422)
        assert 100 < num_read < 900, "some can still be read and some cannot"

    run(service_of(small_bundle), check)


def test_mutated_queries_forms_and_methods_never_make_it_fail(small_bundle: Path, tmp_path: Path) -> None:
    chance = random.Random(3)
    odd = ["\x00", "../../etc/passwd", "%2e%2e%2f", "🦉" * 80, "'\"<script>", "9" * 40, "-1", "nan", "", "a" * 5000]
    paths = ["/predict", "/explain", "/feedback", "/to-label", "/session", "/classes", "/to-label/{}", "/feedback/{}"]
    kinds = [
        "multipart/form-data",
        "multipart/form-data; boundary=",
        "multipart/form-data; boundary=x; charset=no",
        "multipart/mixed; boundary=x",
        "application/json",
        "image/png",
        "text/plain; charset=\xff",
        "",
    ]
    long_field = b'--x\r\nContent-Disposition: form-data; name="label"\r\n\r\n' + b"l" * 9000 + b"\r\n--x--\r\n"
    cut_head = b"--x\r\nContent-Disposition: form-data"
    bodies = [b"", b"{", b'{"label": 3}', b'{"token": "\\ud800"}', b"--x\r\n\r\n--x--", cut_head, photo(), long_field]

    async def check(client: httpx.AsyncClient) -> None:
        seen = set()
        for _ in range(200):
            kind = chance.choice(kinds).encode("latin-1")
            answer = await client.request(
                chance.choice(["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"]),
                chance.choice(paths).format(quote(chance.choice(odd), safe="")[:300]),
                params={chance.choice(["top", "label", "x"]): chance.choice(odd)},
                headers={
                    "content-type": kind,
                    "cookie": chance.choice(["", "a=b;;=", "\x7f"]),
                },
                content=chance.choice(bodies),
            )
            assert answer.status_code != 500, (answer.request.method, answer.request.url, answer.text)
            seen.add(answer.status_code)
        assert {200, 400, 404, 405, 422} <= seen

    run(service_of(small_bundle, feedback=tmp_path / "feedback", to_label=tmp_path), check)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()], "nothing was kept"


def test_no_answer_tells_where_the_server_keeps_its_files(bundle: Path, tmp_path: Path) -> None:
    feedback, to_label = tmp_path / "feedback", tmp_path / "to-label"
    to_label.mkdir()
    (to_label / "a.png").write_bytes(photo(9))
    service = service_of(bundle, feedback=feedback, to_label=to_label)

    async def check(client: httpx.AsyncClient) -> None:
        paths = ("/", "/docs", "/openapi.json", "/info", "/classes", "/metrics", "/feedback", "/to-label", "/none")
        texts = [(await client.get(path)).text for path in paths]
        form: dict[str, Any] = {"files": {"file": photo()}, "data": {"label": "cat"}}
        texts.append((await client.post("/feedback", **form)).text)
        (feedback / "dog").write_text("in the way of a folder")
        blocked = await client.post("/feedback", files={"file": photo(2)}, data={"label": "dog"})
        assert blocked.status_code == 507
        texts.append(blocked.text)
        assert not [text for text in texts if str(tmp_path) in text or tmp_path.name in text]

    run(service, check)


def test_nothing_of_a_request_is_kept_without_feedback(bundle: Path, tmp_path: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}

    async def check(client: httpx.AsyncClient) -> None:
        large = photo(1, "BMP", (900, 900))  # more than what form readers keep in memory by default
        assert (await client.post("/predict", files={"file": large})).status_code == 200
        assert (await client.post("/feedback", files={"file": photo()}, data={"label": "a"})).status_code == 404
        assert (await client.get("/info")).json()["takes_feedback"] is False

    run(service_of(bundle), check)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
