"""The real server in a process of its own."""

import re
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from servers import SECONDS, Server, photo, serving

from foster.bundle.promotion import promote, rollback

TOKEN = "a secret of enough letters"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def bundles(small_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of two bundles, of which v1 is promoted."""
    folder = tmp_path_factory.mktemp("bundles")
    for name in ("v1", "v2"):
        shutil.copytree(small_bundle, folder / name)
    promote(folder / "v1")
    return folder


@pytest.fixture(scope="module")
def server(bundles: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for all tests that do not kill it."""
    folder = tmp_path_factory.mktemp("serving")
    with serving(bundles, folder, "--feedback", folder / "feedback", "--max-mib", 1, "--token", TOKEN) as found:
        yield found


def exchange(port: int, request: bytes) -> bytes:
    """What the server answers to these bytes before it closes the connection."""
    answer = b""
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as connection, suppress(ConnectionError):
        connection.sendall(request)
        while part := connection.recv(65536):
            answer += part
    return answer


def test_promote_and_rollback_under_load_lose_no_request(server: Server, bundles: Path) -> None:
    seen: list[str] = []
    failures: list[str] = []
    is_over = threading.Event()

    def ask() -> None:
        with httpx.Client(base_url=server.url, headers=BEARER, timeout=SECONDS) as client:
            while not is_over.is_set():
                answer = client.post("/predict", content=photo())
                if answer.status_code != 200:
                    failures.append(answer.text)
                    return
                seen.append(answer.json()["bundle"]["name"])
                time.sleep(0.01)

    def wait_until(name: str) -> None:
        until, start = time.monotonic() + SECONDS, len(seen)
        while name not in seen[start:]:
            assert time.monotonic() < until, f"'{name}' never took over"
            assert not failures, failures
            time.sleep(0.01)

    clients = [threading.Thread(target=ask) for _ in range(2)]
    try:
        for client in clients:
            client.start()
        wait_until("v1")
        promote(bundles / "v2")
        wait_until("v2")
        rollback(bundles)
        wait_until("v1")
        # A bundle that is damaged leaves the one in use.
        (bundles / "v2" / "network.safetensors").write_bytes(b"broken")
        (bundles / "v2-link").symlink_to("v2")  # promote would see it
        (bundles / "v2-link").replace(bundles / "current")
        server.wait_for("cannot be loaded")
        start = len(seen)
        wait_until("v1")
        assert set(seen[start:]) == {"v1"}
    finally:
        is_over.set()
        for client in clients:
            client.join(SECONDS)
    assert not failures
    info = httpx.get(f"{server.url}/info", headers=BEARER).json()
    assert "'v2'" in info["problem"]
    assert info["num_swaps"] == 2


def test_killed_and_started_again_it_answers_on_the_same_port_and_feedback_is_whole(
    small_bundle: Path, tmp_path: Path
) -> None:
    feedback = tmp_path / "feedback"
    with serving(small_bundle, tmp_path, "--feedback", feedback) as server:
        port = server.port
        form = {"files": {"file": photo()}, "data": {"label": "cat"}}
        stored = httpx.post(f"{server.url}/feedback", **form).json()
        with ThreadPoolExecutor(4) as pool:
            asked = [pool.submit(httpx.post, f"{server.url}/predict", content=photo(k)) for k in range(20)]
            server.process.kill()
            for future in asked:  # whatever they got, it was no wrong answer
                assert future.exception(SECONDS) or future.result().status_code == 200
        server.process.join(SECONDS)
    with serving(small_bundle, tmp_path, "--feedback", feedback, port=port) as server:
        assert httpx.get(f"{server.url}/health").json() == {"status": "ok"}
        assert httpx.get(f"{server.url}/feedback").json() == {"num_photos": 1, "classes": {"cat": 1}}
        assert (feedback / "cat" / stored["photo"]).read_bytes() == photo()


def test_a_body_that_is_too_large_is_refused_before_it_is_sent(server: Server) -> None:
    head = f"POST /predict HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n".encode()
    answer = exchange(server.port, head + b"Content-Length: 999999999999\r\n\r\n")  # the body never comes
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"1,048,576 bytes" in answer
    assert httpx.get(f"{server.url}/health").status_code == 200


def documented_client() -> Callable[[Path, str, str], dict[str, Any]]:
    """The function `predict` of docs/serving.md."""
    text = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(code, "docs/serving.md", "exec"), names)
    return names["predict"]  # type: ignore[no-any-return]


def test_without_the_token_nothing_but_health_is_told(server: Server, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(photo())
    paths = ("/info", "/classes", "/metrics", "/openapi.json", "/feedback", "/to-label", "/nothing")
    assert {httpx.get(server.url + path).status_code for path in paths} == {401}
    assert httpx.post(f"{server.url}/predict", content=photo()).status_code == 401
    assert httpx.get(f"{server.url}/health").json() == {"status": "ok"}
    answer = documented_client()(tmp_path / "a.png", server.url, TOKEN)
    assert answer["label"] in ("zero", "one", "unknown")
    # A browser is asked by the page, and has a cookie from then on.
    with httpx.Client(base_url=server.url) as browser:
        asked = browser.get("/")
        assert asked.status_code == 401
        assert "asks for a token" in asked.text
        assert browser.post("/session", json={"token": "wrong"}).status_code == 401
        signed_in = browser.post("/session", json={"token": TOKEN})
        assert {"httponly", "samesite=strict"} <= {
            part.strip().lower() for part in signed_in.headers["set-cookie"].split(";")
        }
        assert "secret" not in signed_in.headers["set-cookie"]
        assert browser.get("/").status_code == 200
        assert browser.get("/info").status_code == 200
