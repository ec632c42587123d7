"""Contact sheets: all images of a bundle with their ids, or the findings of `foster check`."""

from collections.abc import Callable, Sequence
from functools import cache, partial
from io import BytesIO
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryFile
from typing import NamedTuple

from PIL import Image, ImageDraw, ImageFont

from foster.bundle.folder import Bundle, check_outside
from foster.data.photos.decode import ImageError, ImageLike, Resizing, decode, quiet_pillow
from foster.data.photos.reading import check_kept
from foster.learner.check import KINDS, CheckReport, Photo
from foster.system.counts import counted
from foster.system.files import check_ending, explained_write_errors, write_bytes

TILE, TEXT_HEIGHT, MARGIN, NUM_COLUMNS = 84, 14, 6, 12
INK, HELD_OUT, WRONG = (30, 30, 30), (0, 90, 200), (190, 30, 30)
Colour = tuple[int, int, int]

MOST_KEPT = 10_000
"""The most kept images on a sheet."""
MOST_PICTURES = 600
"""The most pictures of findings on a sheet; the table and the JSON have all findings."""

CAPTION_LENGTH = 13
"""The most letters of a line of a caption."""


class Tile(NamedTuple):
    """A picture, decoded when it is drawn, above the lines of a caption."""

    picture: Callable[[], Image.Image]
    caption: tuple[str, ...]
    colour: Colour = INK


class Section(NamedTuple):
    """A heading, and rows of pictures."""

    heading: str
    tiles: Sequence[Tile]
    colour: Colour = INK


def check_place(path: Path) -> None:
    """Refuse a path that does not end in .png or cannot be written, before anything is computed; its folder is made."""
    check_ending(path, ".png")  # other formats limit the height
    check_outside(path)
    with explained_write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=path.parent):
            pass


def draw_sheet(bundle: Bundle, path: Path) -> None:
    """A section for each class with images: its id and name, then every image above its id; held-out images have blue
    ids. Of a large bundle, the first images are shown."""
    check_kept([*bundle.files("exemplars"), *bundle.files("held-out")], Resizing(*bundle.manifest.preprocessing.size))
    sections = []
    shown = bundle.manifest.exemplars[:MOST_KEPT]
    for class_id, name in enumerate(bundle.manifest.classes):
        entries = [entry for entry in shown if entry.class_id == class_id]
        if not entries:
            continue
        tiles = [
            Tile(
                partial(decode, bundle.image_files[entry.file]),
                (entry.id,),
                HELD_OUT if entry.use == "held-out" else INK,
            )
            for entry in entries
        ]
        # The id distinguishes classes whose names have letters that no font has.
        sections.append(Section(f"{class_id:04d}  {counted(len(entries), 'image')} of {name}", tiles))
    legend = [("black ids: learned from", INK), ("blue ids: held out, never learned from", HELD_OUT)]
    draw_sections(sections, legend, path)


def draw_check(report: CheckReport, path: Path) -> int:
    """A section for each kind of finding. Photos that belong together, such as duplicates, have a section of their own.

    Returns the number of pictures on the sheet, which is not written if there is no finding with a photo.
    """
    sections: list[Section] = []
    num_left = MOST_PICTURES
    for kind, (title, is_problem) in KINDS.items():
        findings = [finding for finding in report.of_kind(kind) if finding.photos]
        if not findings:
            continue
        alone = [finding for finding in findings if len(finding.photos) == 1][:num_left]
        tiles = [_photo_tile(finding.photos[0], finding.looks_like) for finding in alone]
        sections.append(Section(f"{title} ({len(findings)})", tiles, WRONG if is_problem else INK))
        num_left -= len(tiles)
        for finding in findings:
            photos = finding.photos[: min(NUM_COLUMNS, num_left)]
            if len(finding.photos) > 1 and photos:
                sections.append(Section(finding.detail, [_photo_tile(photo) for photo in photos]))
                num_left -= len(photos)
    if sections:
        legend = [("red: a problem", WRONG), ("black: a remark; a above > b: in class a, looks like b", INK)]
        with quiet_pillow():
            draw_sections(sections, legend, path)
    return MOST_PICTURES - num_left


def _photo_tile(photo: Photo, looks_like: str | None = None) -> Tile:
    """The photo above its class and file, or above its class and the class that it looks like."""
    below = Path(photo.name).name if looks_like is None else f"> {looks_like}"
    return Tile(partial(_picture, photo.item), (without_middle(photo.label), without_middle(below)))


def without_middle(text: str) -> str:
    """The text without its middle if it is longer than a line of a caption."""
    half = CAPTION_LENGTH // 2
    return text if len(text) <= CAPTION_LENGTH else f"{text[:half]}…{text[-half:]}"


def _picture(item: ImageLike) -> Image.Image:
    """The decoded photo; a grey square if it cannot be read."""
    try:
        return decode(item, TILE)
    except ImageError:
        return Image.new("RGB", (TILE, TILE), (200, 200, 200))


def draw_sections(sections: Sequence[Section], legend: Sequence[tuple[str, Colour]], path: Path) -> None:
    """Write a PNG of all sections, one below the other, and the legend."""
    num_lines = max((len(tile.caption) for section in sections for tile in section.tiles), default=0)
    pitch_x, pitch_y = TILE + MARGIN, TILE + num_lines * TEXT_HEIGHT + MARGIN
    num_rows = [-(-len(section.tiles) // NUM_COLUMNS) for section in sections]
    height = sum(rows * pitch_y + 2 * TEXT_HEIGHT for rows in num_rows) + MARGIN + 2 * TEXT_HEIGHT
    sheet = Image.new("RGB", (NUM_COLUMNS * pitch_x + MARGIN, height), (255, 255, 255))
    write = partial(_write, ImageDraw.Draw(sheet))
    top = MARGIN
    for section, rows in zip(sections, num_rows, strict=True):
        write((MARGIN, top), section.heading, section.colour, 13)
        top += int(1.5 * TEXT_HEIGHT)
        for position, tile in enumerate(section.tiles):
            row, column = divmod(position, NUM_COLUMNS)
            x, y = MARGIN + column * pitch_x, top + row * pitch_y
            picture = _tile(tile.picture())
            sheet.paste(picture, (x, y + TILE - picture.height))  # its caption is right below it
            for line, text in enumerate(tile.caption):
                write((x, y + TILE + line * TEXT_HEIGHT), text, tile.colour, 10)
        top += rows * pitch_y + TEXT_HEIGHT // 2
    for position, (text, colour) in enumerate(legend):
        write((MARGIN + 3 * position * pitch_x, top), text, colour, 13)
    buffer = BytesIO()
    sheet.save(buffer, "PNG")
    write_bytes(path, buffer.getvalue())


def _write(draw: ImageDraw.ImageDraw, place: tuple[int, int], text: str, colour: Colour, size: int) -> None:
    """Write each part of the text in the first font that has its letters. Pillow itself uses one font for a text."""
    fonts = _fonts(size)
    usual = fonts[0][0]
    x, baseline = float(place[0]), place[1] + usual.getmetrics()[0]
    parts = groupby(text, lambda letter: next((font for font, known in fonts if ord(letter) in known), usual))
    for font, letters in parts:
        part = "".join(letters)
        draw.text((x, baseline), part, colour, font=font, anchor="ls")
        x += font.getlength(part)


@cache
def _fonts(size: int) -> list[tuple[ImageFont.FreeTypeFont, frozenset[int]]]:
    """The fonts of figures, each with the letters that it has; Pillow's own font has only Latin letters."""
    from matplotlib.font_manager import findfont
    from matplotlib.ft2font import FT2Font

    from foster.reports.style import fonts

    files = [findfont(name) for name in fonts()]
    return [(ImageFont.truetype(file, size), frozenset(FT2Font(file).get_charmap())) for file in files]


def _tile(image: Image.Image) -> Image.Image:
    """The picture, scaled to the size of a tile. Small pictures are enlarged without smoothing."""
    scale = TILE / max(image.size)
    size = max(1, round(image.width * scale)), max(1, round(image.height * scale))
    return image.resize(size, Image.Resampling.NEAREST if scale > 1 else Image.Resampling.BILINEAR)
