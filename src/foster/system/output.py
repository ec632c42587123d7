"""Standard output and standard error as they may be: closed, on a full disk, or left by their reader."""

import codecs
import io
import json
import os
import sys
from contextlib import suppress
from pathlib import Path

from foster.errors import words_of

PLAINER = {"\u2500": "-", "\u2501": "-", "\u2502": "|", "\u2013": "-", "\u2026": "...", "\u00d7": "x", "\u00b1": "+-"}
"""What stands for our own signs where the locale has none of them."""

UNBOUNDED = 1000
"""Characters a line where no terminal sets a limit: in a file or a pipe, a row of a table is one line."""


def show(renderable: object) -> None:
    """Print text as it is, and anything else with rich; what cannot be printed is an OSError."""
    if isinstance(renderable, str):
        echo(renderable)
        return
    from rich.console import Console

    class Window(Console):
        def on_broken_pipe(self) -> None:
            raise  # rich would end the process

    window = Window()
    if not window.is_terminal and not os.environ.get("COLUMNS", "").isdigit():
        window.width = UNBOUNDED
    window.print(renderable)


def plain_text(renderable: object) -> str:
    """What rich draws, as lines without colours that are as long as they need to be."""
    from rich.console import Console

    file = io.StringIO()
    Console(file=file, width=UNBOUNDED**2, no_color=True, force_terminal=False, force_jupyter=False).print(renderable)
    return "".join(f"{line.rstrip()}\n" for line in file.getvalue().splitlines())


def report(*renderables: object, path: Path) -> None:
    """Show how work has ended that is done and saved in `path`: where that cannot be shown, it has not failed."""
    try:
        for renderable in renderables:
            show(renderable)
    except OSError as error:
        drop_unwritable_output()
        complain(f"cannot write to standard output ({words_of(error)}); all is done and saved in '{path}'")
    except KeyboardInterrupt:
        complain(f"interrupted; all is done and saved in '{path}'")


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print lines that may hold names from files: nothing in them moves a terminal's cursor."""
    shown = "\n".join(map(printable, text.split("\n")))
    print(shown, end="\n" if nl else "", file=sys.stderr if err else sys.stdout, flush=True)


def json_text(data: object) -> str:
    """JSON that people can read and any terminal can show."""
    return escaped(json.dumps(data, ensure_ascii=False, allow_nan=False))


def escaped(text: str) -> str:
    """JSON in which every character that is not printable is written as an escape."""
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def printable(text: str) -> str:
    """Text from files without what would move a terminal's cursor or colour its letters."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)


def complain(line: str) -> None:
    """A line on standard error, where there is one: `print` would take standard output in its place.

    It may hold text from files: nothing in it moves a terminal's cursor.
    """
    shown = printable(" ".join(line.split()))
    with suppress(OSError, ValueError):
        if sys.stderr is not None:
            print(f"foster: {shown}", file=sys.stderr, flush=True)


def drop_unwritable_output() -> None:
    """Forget what standard output did not take: Python would try again at its end, and fail."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)


def prepare_streams() -> None:
    """Put a stream to nowhere where one was closed (`2>&-`): the next file to be opened would take its number, and
    what a library tells standard error would be written into that file."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8", closefd=False))
    # What the locale cannot encode is shown in other letters: no name may cost the work that it stands for.
    codecs.register_error("plainer", _plainer)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="plainer")


def _plainer(error: UnicodeError) -> tuple[str, int]:
    """Rules and dashes as ASCII has them, and names as escapes."""
    assert isinstance(error, UnicodeEncodeError)
    part = error.object[error.start : error.end]
    return "".join(PLAINER.get(c) or c.encode("ascii", "backslashreplace").decode() for c in part), error.end
