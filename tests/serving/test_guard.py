"""Who may ask, and how much."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from servers import client_of, photo, service_of

from foster.serving.guard import session_of
from foster.serving.options import Options


def statuses(bundle: Path, requests: list[tuple[str, str, dict[str, str]]], **options: object) -> list[int]:
    async def ask() -> list[int]:
        async with client_of(service_of(bundle, **options)) as client:
            return [
                (
                    await client.request(method, path, headers=headers, content=photo() if method == "POST" else None)
                ).status_code
                for method, path, headers in requests
            ]

    return asyncio.run(ask())


def test_only_its_own_names_and_addresses_are_answered_unless_a_token_is_needed(small_bundle: Path) -> None:
    """A stranger may point any other name here."""
    accepted = ["localhost", "localhost:8000", "127.0.0.1:1", "192.168.1.7", "[::1]:80"]
    other = ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:8000", "[::1", "a@b"]
    requests = [("GET", "/info", {"host": host}) for host in accepted + other]
    expected = [200] * len(accepted) + [421] * len(other)
    assert statuses(small_bundle, requests) == expected
    bearer = [("GET", "/info", {"host": host, "authorization": "Bearer secret"}) for host in other]
    assert statuses(small_bundle, bearer, token="secret") == [200] * len(other)


def test_pages_of_other_sites_cannot_send_anything(small_bundle: Path) -> None:
    accepted, other = {"origin": "http://localhost"}, {"origin": "http://evil.example"}
    wrong = [other, {"origin": "null"}, {"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site", **accepted}]
    right = [accepted, {}, {"sec-fetch-site": "same-origin"}, {"sec-fetch-site": "none"}]
    assert statuses(small_bundle, [("POST", "/predict", headers) for headers in wrong]) == [403] * 4
    assert statuses(small_bundle, [("POST", "/predict", headers) for headers in right]) == [200] * 4
    assert statuses(small_bundle, [("GET", "/info", headers) for headers in wrong]) == [200] * 4


def test_only_the_token_or_its_session_opens(small_bundle: Path) -> None:
    right = [{"authorization": "Bearer sécret"}, {"authorization": "bearer  sécret "}]
    right += [{"cookie": f"a=1; foster_session={session_of('sécret')}"}]
    wrong = [{}, {"authorization": "Basic sécret"}, {"authorization": "Bearer"}, {"authorization": "Bearer sécre"}]
    wrong += [{"cookie": "foster_session=sécret"}, {"cookie": "foster_session="}, {"authorization": "sécret"}]
    encoded = [{key: value.encode() for key, value in headers.items()} for headers in right + wrong]
    asked = [("GET", "/info", headers) for headers in encoded]
    assert statuses(small_bundle, asked, token="sécret") == [200] * 3 + [401] * 7  # type: ignore[arg-type]


def test_a_body_without_a_length_is_refused_at_the_first_byte_too_many(small_bundle: Path) -> None:
    num_sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal num_sent
        while True:
            num_sent += 1
            yield bytes(1000)

    async def check() -> None:
        async with client_of(service_of(small_bundle, max_bytes=10_000)) as client:
            for path in ("/predict", "/session"):
                answer = await client.post(path, content=endless(), headers={"content-type": "application/json"})
                assert answer.status_code == 413, path

    asyncio.run(check())
    assert num_sent <= 2 * 11


def test_the_pages_run_nothing_but_their_own_scripts(small_bundle: Path) -> None:
    async def check() -> None:
        async with client_of(service_of(small_bundle)) as client:
            answer = await client.get("/")
            policy = answer.headers["content-security-policy"]
            assert policy.startswith("default-src 'none'; script-src 'sha256-")
            assert "unsafe" not in policy
            assert "http" not in policy
            assert 'src="http' not in answer.text, "nothing comes from elsewhere"
            assert answer.headers["x-frame-options"] == "DENY"
            api = await client.get("/info")
            assert api.headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"
            assert api.headers["cache-control"] == "no-store"

    asyncio.run(check())


def test_one_status_for_each_request_is_counted_by_route(small_bundle: Path) -> None:
    async def check() -> None:
        async with client_of(service_of(small_bundle)) as client:
            for path in ("/health", "/nothing", "/else"):
                await client.get(path)
            await client.request("GET", "/health", headers={"host": "evil.example"})
            told = (await client.get("/metrics")).text
            assert 'foster_requests_total{route="/health",status="200"} 1.0\n' in told
            assert 'foster_requests_total{route="other",status="404"} 2.0\n' in told
            assert 'foster_requests_total{route="other",status="421"} 1.0\n' in told

    asyncio.run(check())


def test_a_token_is_never_shown() -> None:
    assert "secret" not in repr(Options(Path("v1"), token="secret"))
