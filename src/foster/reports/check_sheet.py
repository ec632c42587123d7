"""What a look at photos found, on one sheet."""

from functools import partial
from pathlib import Path

from PIL import Image

from foster.data.photos.decode import ImageError, ImageLike, decode, quiet_pillow
from foster.errors import FolderError
from foster.learner.check_report import KINDS, CheckReport, Photo
from foster.reports.contact_sheet import INK, NUM_COLUMNS, TILE, WRONG, Section, Tile, check_writable, draw_sections

MOST_PICTURES = 600
"""On a sheet; what is found more often is in the table and in JSON."""

MOST_OF_A_GROUP = NUM_COLUMNS
CAPTION_LENGTH = 13
"""Letters that stand below a picture."""

FORMATS = {".png", ".jpg", ".jpeg", ".webp"}


def check_place(path: Path) -> None:
    """Refuse a name that no picture can have, or a place that cannot be written, before anything is looked at."""
    if path.suffix.lower() not in FORMATS:
        raise FolderError(f"cannot write '{path}': its name must end in {', '.join(sorted(FORMATS))}")
    check_writable(path)


def draw_check(report: CheckReport, path: Path) -> int:
    """A section for each kind, and in it one for each group of photos that belong together; returns how many pictures
    are on the sheet, which is not drawn where there are none."""
    sections: list[Section] = []
    num_left = MOST_PICTURES
    for kind, (title, is_problem) in KINDS.items():
        found = [finding for finding in report.of_kind(kind) if finding.photos]
        if not found:
            continue
        colour = WRONG if is_problem else INK
        is_each_alone = all(len(finding.photos) == 1 for finding in found)
        alone = found[:num_left] if is_each_alone else []
        num_left -= len(alone)
        tiles = [_tile(finding.photos[0], finding.looks_like) for finding in alone]
        sections.append(Section(f"{title} ({len(found)})", tiles, colour))
        if is_each_alone:
            continue
        for finding in found:
            photos = finding.photos[: min(MOST_OF_A_GROUP, num_left)]
            if photos:
                sections.append(Section(finding.detail, [_tile(photo) for photo in photos]))
                num_left -= len(photos)
    if not sections:
        return 0
    legend = [("red: a problem", WRONG), ("black: a remark; a > b: in class a, looks like b", INK)]
    with quiet_pillow():
        draw_sections(sections, legend, path)
    return MOST_PICTURES - num_left


def _tile(photo: Photo, looks_like: str | None = None) -> Tile:
    """The photo above its class and file, or above its class and the one that it probably belongs to."""
    if looks_like is not None:
        half = CAPTION_LENGTH // 2
        return Tile(partial(_picture, photo.item), f"{photo.label[:half]} > {looks_like[:half]}")
    caption = f"{photo.label}/{Path(photo.name).name}"
    short = caption if len(caption) <= CAPTION_LENGTH else f"…{caption[-CAPTION_LENGTH:]}"
    return Tile(partial(_picture, photo.item), short)


def _picture(item: ImageLike) -> Image.Image:
    """A grey square for what cannot be read."""
    try:
        return decode(item, TILE)
    except ImageError:
        return Image.new("RGB", (TILE, TILE), (200, 200, 200))
