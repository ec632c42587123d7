"""Predictions within limits of number and time, and what Prometheus reads of them."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from servers import photo, run, service_of

from foster.serving.served import Served


def held_answers(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """From now on answers wait until this is set."""
    is_released = threading.Event()
    answers = Served.answers

    def slow_answers(served: Served, images: torch.Tensor) -> Any:
        assert is_released.wait(30)
        return answers(served, images)

    monkeypatch.setattr(Served, "answers", slow_answers)
    return is_released


def test_a_full_queue_refuses_at_once_and_takes_again_when_there_is_room(
    small_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = service_of(small_bundle, max_waiting=3)
    is_released = held_answers(monkeypatch)

    async def check(client: httpx.AsyncClient) -> None:
        waiting = [asyncio.create_task(client.post("/predict", content=photo(0)))]
        while service.num_in_work < 1:
            await asyncio.sleep(0.001)
        three = [("file", (f"{k}.png", photo())) for k in range(3)]
        assert (await client.post("/predict", files=three)).status_code == 429, "two would be taken"
        waiting += [asyncio.create_task(client.post("/predict", content=photo(k))) for k in (1, 2)]
        while service.num_in_work < 3:
            await asyncio.sleep(0.001)
        refused = await client.post("/predict", content=photo())
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert (await client.get("/health")).status_code == 200
        is_released.set()
        assert [(await task).status_code for task in waiting] == [200, 200, 200]
        assert (await client.post("/predict", files=three)).status_code == 200
        assert service.num_in_work == 0
        many = [("file", (f"{k}.png", photo())) for k in range(4)]
        assert (await client.post("/predict", files=many)).status_code == 413

    run(service, check)


def test_an_answer_that_takes_too_long_is_a_503_and_the_next_one_is_not(
    small_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = service_of(small_bundle, timeout=0.2)
    is_released = held_answers(monkeypatch)

    async def check(client: httpx.AsyncClient) -> None:
        late = await client.post("/predict", content=photo())
        assert (late.status_code, late.json()["error"]) == (503, "no answer within the time limit; try again")
        is_released.set()
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
