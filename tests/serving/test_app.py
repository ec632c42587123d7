"""All routes together: whatever is sent, it never fails and tells nothing of the machine."""

import random
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
from servers import photo, run, service_of


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
        paths = ("/", "/openapi.json", "/info", "/classes", "/metrics", "/feedback", "/to-label", "/none")
        texts = [(await client.get(path)).text for path in paths]
        form: dict[str, Any] = {"files": {"file": photo()}, "data": {"label": "cat"}}
        texts.append((await client.post("/feedback", **form)).text)
        (feedback / "dog").write_text("in the way of a folder")
        blocked = await client.post("/feedback", files={"file": photo(2)}, data={"label": "dog"})
        assert blocked.status_code == 507
        texts.append(blocked.text)
        assert not [text for text in texts if str(tmp_path) in text or tmp_path.name in text]

    run(service, check)
