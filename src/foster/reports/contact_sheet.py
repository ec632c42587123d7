"""Many pictures on one sheet: all images of a bundle with their ids, or whatever else is to be looked at."""

from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import NamedTuple

from PIL import Image, ImageDraw, ImageFont, features

from foster.bundle.files import check_outside
from foster.bundle.folder import Bundle
from foster.data.photos.decode import decode
from foster.errors import FolderError
from foster.system.counts import counted
from foster.system.files import unwritable, written

TILE, TEXT_HEIGHT, MARGIN, NUM_COLUMNS = 84, 14, 6, 12
INK, HELD_OUT, WRONG = (30, 30, 30), (0, 90, 200), (190, 30, 30)
Colour = tuple[int, int, int]


class Tile(NamedTuple):
    """A picture, decoded when it is drawn, above a caption."""

    picture: Callable[[], Image.Image]
    caption: str
    colour: Colour = INK


class Section(NamedTuple):
    """A heading, and a row or more of pictures."""

    heading: str
    tiles: Sequence[Tile]
    colour: Colour = INK


def check_writable(path: Path) -> None:
    """Refuse a place that cannot be written before anything is drawn; its folder is made."""
    check_outside(path)
    with written(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=path.parent):
            pass


def draw_sheet(bundle: Bundle, title: str, path: Path) -> None:
    """A row or more for each class: its id and name, then every image above its id; held-out images have blue ids."""
    sections = []
    for class_id, name in enumerate(bundle.manifest.classes):
        entries = [entry for entry in bundle.manifest.exemplars if entry.class_id == class_id]
        tiles = [
            Tile(
                partial(decode, bundle.image_files[entry.file]), entry.id, HELD_OUT if entry.use == "held-out" else INK
            )
            for entry in entries
        ]
        # The id tells classes apart whose names are in a script that the font lacks.
        sections.append(Section(f"{class_id:04d}  {counted(len(entries), 'image')} of {name}", tiles))
    legend = [("black ids: trained on again", INK), ("blue ids: held out, never trained on", HELD_OUT)]
    draw_sections(sections, legend, path)


def draw_sections(sections: Sequence[Section], legend: Sequence[tuple[str, Colour]], path: Path) -> None:
    """All sections below each other, and the legend."""
    heading_font = _font(13)
    pitch_x, pitch_y = TILE + MARGIN, TILE + TEXT_HEIGHT + MARGIN
    num_rows = [-(-len(section.tiles) // NUM_COLUMNS) for section in sections]
    height = sum(rows * pitch_y + 2 * TEXT_HEIGHT for rows in num_rows) + MARGIN + 2 * TEXT_HEIGHT
    sheet = Image.new("RGB", (NUM_COLUMNS * pitch_x + MARGIN, height), (255, 255, 255))
    # A name that is read from the right stays where it is: what is around it is read from the left.
    write = partial(ImageDraw.Draw(sheet).text, direction="ltr" if features.check("raqm") else None)
    top = MARGIN
    for section, rows in zip(sections, num_rows, strict=True):
        write((MARGIN, top), section.heading, section.colour, font=font_for(section.heading, 13))
        top += int(1.5 * TEXT_HEIGHT)
        for position, tile in enumerate(section.tiles):
            row, column = divmod(position, NUM_COLUMNS)
            x, y = MARGIN + column * pitch_x, top + row * pitch_y
            sheet.paste(_tile(tile.picture()), (x, y))
            write((x, y + TILE), tile.caption, tile.colour, font=font_for(tile.caption, 10))
        top += rows * pitch_y + TEXT_HEIGHT // 2
    for position, (text, colour) in enumerate(legend):
        write((MARGIN + 3 * position * pitch_x, top), text, colour, font=heading_font)
    try:
        sheet.save(path)
    except OSError as error:
        raise unwritable(path, error) from None
    except ValueError as error:
        raise FolderError(f"cannot write '{path}': {error}") from None


@cache
def font_for(text: str, size: int) -> ImageFont.FreeTypeFont:
    """A font that has the letters of `text`: DejaVu Sans, or one of this machine's; DejaVu Sans where none has."""
    usual = _font(size)
    if _has_letters(usual, text):
        return usual
    from matplotlib import font_manager

    for path in sorted(font_manager.findSystemFonts()):
        try:
            font = ImageFont.truetype(path, size)
        except (OSError, ValueError):  # not a font that Pillow reads
            continue
        if _has_letters(font, text):
            return font
    return usual


def _has_letters(font: ImageFont.FreeTypeFont, text: str) -> bool:
    """Whether no letter is drawn as the box that stands for a missing one."""
    missing = bytes(font.getmask("\U0010fffd"))
    return all(letter.isspace() or bytes(font.getmask(letter)) != missing for letter in set(text))


def _font(size: int) -> ImageFont.FreeTypeFont:
    """DejaVu Sans, which has the letters of most alphabets; Pillow's own font has only the Latin ones."""
    import matplotlib as mpl

    return ImageFont.truetype(Path(mpl.get_data_path(), "fonts", "ttf", "DejaVuSans.ttf"), size)


def _tile(image: Image.Image) -> Image.Image:
    """The picture in a square, small ones with visible pixels."""
    scale = TILE / max(image.size)
    size = max(1, round(image.width * scale)), max(1, round(image.height * scale))
    return image.resize(size, Image.Resampling.NEAREST if scale > 1 else Image.Resampling.BILINEAR)
