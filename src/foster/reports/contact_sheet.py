"""All images of a bundle on one sheet, with their ids."""

from functools import cache
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from foster.bundle.folder import Bundle
from foster.data.photos.decode import decode
from foster.errors import FolderError

TILE, TEXT_HEIGHT, MARGIN, NUM_COLUMNS = 84, 14, 6, 12
INK, HELD_OUT = (30, 30, 30), (0, 90, 200)


def draw_sheet(bundle: Bundle, title: str, path: Path) -> None:
    """A row or more for each class: its id and name, then every image above its id; held-out images have blue ids."""
    manifest = bundle.manifest
    font, heading_font = _font(10), _font(13)
    pitch_x, pitch_y = TILE + MARGIN, TILE + TEXT_HEIGHT + MARGIN
    of_class = [[entry for entry in manifest.exemplars if entry.class_id == k] for k in range(len(manifest.classes))]
    num_rows = [-(-len(entries) // NUM_COLUMNS) for entries in of_class]
    height = sum(rows * pitch_y + 2 * TEXT_HEIGHT for rows in num_rows) + MARGIN + 2 * TEXT_HEIGHT
    sheet = Image.new("RGB", (NUM_COLUMNS * pitch_x + MARGIN, height), (255, 255, 255))
    draw = ImageDraw.Draw(sheet)
    top = MARGIN
    for class_id, (name, entries, rows) in enumerate(zip(manifest.classes, of_class, num_rows, strict=True)):
        # The id tells classes apart whose names are in a script that the font lacks.
        heading = f"{class_id:04d}  {name}: {len(entries)} images"
        draw.text((MARGIN, top), heading, INK, font=font_for(heading, 13))
        top += int(1.5 * TEXT_HEIGHT)
        for position, entry in enumerate(entries):
            row, column = divmod(position, NUM_COLUMNS)
            x, y = MARGIN + column * pitch_x, top + row * pitch_y
            sheet.paste(_tile(decode(bundle.png_files[entry.file])), (x, y))
            draw.text((x, y + TILE), entry.id, HELD_OUT if entry.use == "held-out" else INK, font=font)
        top += rows * pitch_y + TEXT_HEIGHT // 2
    draw.text((MARGIN, top), "black ids: trained on again", INK, font=heading_font)
    draw.text((MARGIN + 3 * pitch_x, top), "blue ids: held out, never trained on", HELD_OUT, font=heading_font)
    try:
        sheet.save(path)
    except (OSError, ValueError) as error:
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
