"""The photos of a request: a form with files, or the bytes of one image."""

from typing import NamedTuple
from urllib.parse import unquote

from fastapi import Request
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser

MOST_FILES = 64
MOST_FIELDS = 8
MOST_FIELD_BYTES = 4096
NAME_LENGTH = 120


class Upload(NamedTuple):
    """A file's bytes, and the last part of the name that its sender gave it."""

    name: str
    content: bytes


class Form(NamedTuple):
    uploads: list[Upload]
    fields: dict[str, str]


class _InMemory(MultiPartParser):
    """Nothing of a request is written to the disk; how large one may be is known before."""

    spool_max_size = 2**40


async def read_form(request: Request) -> Form:
    """All files and fields of a request's body. Raises HTTPException."""
    if not request.headers.get("content-type", "").lower().startswith("multipart/"):
        content = await request.body()
        uploads = [Upload("image", content)] if content else []
        return Form(uploads, {})
    parser = _InMemory(
        request.headers,
        request.stream(),
        max_files=MOST_FILES,
        max_fields=MOST_FIELDS,
        max_part_size=MOST_FIELD_BYTES,
    )
    try:
        parsed = await parser.parse()
    except MultiPartException as error:
        raise HTTPException(400, f"the form cannot be read: {error.message}") from None
    except (KeyError, ValueError, LookupError):  # a boundary or a character set that is none
        raise HTTPException(400, "the form cannot be read") from None
    form = Form([], {})
    for key, value in parsed.multi_items():
        if isinstance(value, UploadFile):
            form.uploads.append(Upload(_last_part(value.filename), value.file.read()))
        else:
            form.fields[key] = value
    await parsed.close()
    return form


async def read_images(request: Request) -> list[Upload]:
    """The images of a request, at least one. Raises HTTPException."""
    uploads = (await read_form(request)).uploads
    if not uploads:
        raise HTTPException(400, "no image was sent: send its bytes as the body, or a form with files")
    return uploads


def _last_part(name: str | None) -> str:
    """A file's name without folders, as text that can be shown."""
    last = unquote(name or "").replace("\\", "/").rpartition("/")[2]
    shown = "".join(character for character in last if character.isprintable())
    return shown[:NAME_LENGTH] or "image"
