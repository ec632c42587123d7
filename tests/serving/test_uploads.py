"""The photos of a request: names without folders, limits, and nothing on the disk."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from servers import photo, run, service_of
from starlette.exceptions import HTTPException
from starlette.requests import Request

from foster.serving.uploads import MOST_FIELD_BYTES, MOST_FIELDS, MOST_FILES, Form, read_form


def test_nothing_of_a_request_is_kept_without_feedback(bundle: Path, tmp_path: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}

    async def check(client: httpx.AsyncClient) -> None:
        large = photo(1, "BMP", (900, 900))  # more than what form readers keep in memory by default
        assert (await client.post("/predict", files={"file": large})).status_code == 200
        assert (await client.post("/feedback", files={"file": photo()}, data={"label": "a"})).status_code == 404
        assert (await client.get("/info")).json()["takes_feedback"] is False

    run(service_of(bundle), check)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def read(body: bytes, kind: str = "") -> Form:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    headers = [(b"content-type", kind.encode())] if kind else []
    return asyncio.run(read_form(Request({"type": "http", "method": "POST", "headers": headers}, receive)))


def form(*parts: tuple[str, bytes]) -> bytes:
    head = b"--x\r\nContent-Disposition: form-data; "
    return b"".join(head + name.encode() + b"\r\n\r\n" + content + b"\r\n" for name, content in parts) + b"--x--\r\n"


FORM = "multipart/form-data; boundary=x"


def test_a_body_is_one_image_and_a_form_has_many_with_the_last_part_of_their_names() -> None:
    assert read(b"bytes") == ([("image", b"bytes")], {})
    assert read(b"") == ([], {})
    files = [f'name="f"; filename="{name}"' for name in ("C:\\a\\b.png", "../../c.png", "d%2Fe.png", "g%5Ch.png", "")]
    found = read(form(*((name, b"1") for name in files), ('name="label"', b"cat")), FORM)
    assert [upload.name for upload in found.uploads][:4] == ["b.png", "c.png", "e.png", "h.png"]
    assert found.fields["label"] == "cat"


@pytest.mark.parametrize(
    "body",
    [
        form(*[('name="f"; filename="a"', b"")] * (MOST_FILES + 1)),
        form(*[(f'name="{k}"', b"") for k in range(MOST_FIELDS + 1)]),
        form(('name="label"', b"x" * (MOST_FIELD_BYTES + 1))),
        b"--y\r\n",
    ],
    ids=["files", "fields", "long", "broken"],
)
def test_a_form_beyond_its_limits_is_a_400(body: bytes) -> None:
    with pytest.raises(HTTPException) as error:
        read(body, FORM)
    assert error.value.status_code == 400
    assert error.value.detail.startswith("the form cannot be read")
