"""The output of the command: text without control characters, tables, JSON."""

import io
import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress

UNBOUNDED = 1000
"""The width of lines in a file or a pipe, where a row of a table is one line."""


def show(*renderables: object) -> None:
    """Print text as it is, and anything else with rich."""
    for renderable in renderables:
        if isinstance(renderable, str):
            echo(renderable)
            continue
        from rich.console import Console

        console = Console()
        if not console.is_terminal and not os.environ.get("COLUMNS", "").isdigit():
            console.width = UNBOUNDED
        console.print(renderable)


def plain_text(renderable: object) -> str:
    """A rich renderable as text without colours; lines are not wrapped."""
    from rich.console import Console

    file = io.StringIO()
    Console(file=file, width=UNBOUNDED**2, no_color=True, force_terminal=False, force_jupyter=False).print(renderable)
    return "".join(f"{line.rstrip()}\n" for line in file.getvalue().splitlines())


def echo(text: str, *, nl: bool = True) -> None:
    """Print lines that may contain names from files, without their control characters."""
    shown = "\n".join(map(printable, text.split("\n")))
    print(shown, end="\n" if nl else "", flush=True)


def print_stderr(line: str) -> None:
    """Print one line on standard error; errors of a closed stream are ignored."""
    with suppress(OSError):
        print(f"foster: {printable(' '.join(line.split()))}", file=sys.stderr, flush=True)


def json_text(data: object) -> str:
    """JSON in which only characters that a terminal cannot show are escaped."""
    return escaped(json.dumps(data, ensure_ascii=False, allow_nan=False))


def escaped(text: str) -> str:
    """JSON in which every character that is not printable is written as an escape."""
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def printable(text: str) -> str:
    """Text from files without characters that would move a terminal's cursor or change its colours."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)


def listed(names: Sequence[str], most: int = 12) -> str:
    """The names in one line; if there are many, the first ones and the number of all."""
    more = f", ... ({len(names)} in all)" if len(names) > most else ""
    return ", ".join(map(printable, names[:most])) + more


def drop_unwritable_output() -> None:
    """Discard output that could not be written: Python would try again at exit, and fail."""
    try:
        sys.stdout.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
