"""Commands in several processes that work together, as torchrun starts them, but without its own start."""

import socket
from collections.abc import Mapping, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path

from forked import started


def group_of(
    given: Sequence[str], folder: Path, size: int = 2, held_at: Mapping[int, tuple[Path, str]] | None = None
) -> list[BaseProcess]:
    """`foster` with these words in `size` processes; what rank K says goes to `folder/said-K`. `held_at`: by rank."""
    folder.mkdir(parents=True, exist_ok=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    members = []
    for rank in range(size):
        place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        environment = {name: str(value) for name, value in place.items()}
        members.append(started(given, folder / f"said-{rank}", (held_at or {}).get(rank), environment))
    return members


def ended(members: Sequence[BaseProcess]) -> list[int | None]:
    """Their exit codes; who does not end in time is killed."""
    for member in members:
        member.join(timeout=120)
        if member.is_alive():
            member.kill()
    return [member.exitcode for member in members]


def said_by(folder: Path, rank: int) -> list[str]:
    """The lines with which a process ended."""
    return [line for line in (folder / f"said-{rank}").read_text().splitlines() if line.startswith("foster:")]
