"""Errors that a user can act on: each message is one line that says what to do."""

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

MOST_CHARACTERS = 200
"""The most characters of another error's message that are shown."""

MOST_CHOICES = 40
"""The most choices that are listed in one line."""


class FosterError(Exception):
    """A problem that the user can solve. The command prints it as one line and exits with `exit_code`."""

    exit_code = 2


class SettingsError(FosterError):
    """A setting is unknown, out of range or contradicts another."""


class DataError(FosterError):
    """A data file or folder is missing, damaged or of the wrong kind."""


class FolderError(FosterError):
    """A folder cannot be used: for example, it is not empty, it is in use, or it cannot be written."""


class DeviceError(FosterError):
    """The requested device is missing or has too little memory."""


class TrainingError(FosterError):
    """Training cannot go on, for example because the loss is not a number."""

    exit_code = 1


def words_of(error: BaseException) -> str:
    """The error's message on one short line; for an OSError, the reason without its number."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(text.split())[:MOST_CHARACTERS] or type(error).__name__


@contextmanager
def explained(kind: type[FosterError], what: str) -> Iterator[None]:
    """Turn an OSError inside into an error of this kind, whose message is `what` and the reason."""
    try:
        yield
    except OSError as error:
        raise kind(f"{what}: {words_of(error)}") from None


def suggestion(value: str, choices: Iterable[str]) -> str:
    """`"; did you mean 'resnet32'?"` for the closest choice, or a list of all when none is close."""
    known = sorted(set(choices))
    close = difflib.get_close_matches(value, known, n=1, cutoff=0.6)
    if close:
        return f"; did you mean '{close[0]}'?"
    more = f", ... ({len(known)} in all)" if len(known) > MOST_CHOICES else ""
    return f"; choose from {', '.join(known[:MOST_CHOICES])}{more}" if known else ""


def short(value: Any) -> str:
    """A value in at most 60 characters, for a message."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
