"""Photos of everyday things, rendered: simple drawings in any colour, size and place on pieces of real photos."""

import math
from functools import cache
from pathlib import Path

import numpy as np
import sklearn_images
from PIL import Image, ImageDraw, ImageFilter

Part = tuple[str, tuple[float, ...], int]
"""What is drawn (polygon, ellipse, line, hole), its points in a unit square, and which of three colours it has."""


def _ring(count: int, outer: float, inner: float) -> tuple[float, ...]:
    """A star or a gear around the middle."""
    angles = [math.pi * k / count for k in range(2 * count)]
    radii = [outer if k % 2 == 0 else inner for k in range(2 * count)]
    return tuple(0.5 + r * value for a, r in zip(angles, radii, strict=True) for value in (math.sin(a), -math.cos(a)))


THINGS: dict[str, list[Part]] = {
    "house": [
        ("polygon", (0.1, 0.5, 0.5, 0.1, 0.9, 0.5), 1),
        ("polygon", (0.2, 0.5, 0.8, 0.5, 0.8, 0.95, 0.2, 0.95), 0),
        ("polygon", (0.42, 0.65, 0.58, 0.65, 0.58, 0.95, 0.42, 0.95), 2),
    ],
    "tree": [("polygon", (0.44, 0.6, 0.56, 0.6, 0.56, 0.98, 0.44, 0.98), 1), ("ellipse", (0.15, 0.05, 0.85, 0.68), 0)],
    "car": [
        ("polygon", (0.05, 0.55, 0.25, 0.55, 0.35, 0.35, 0.7, 0.35, 0.8, 0.55, 0.97, 0.58, 0.97, 0.75, 0.05, 0.75), 0),
        ("ellipse", (0.15, 0.65, 0.35, 0.85), 1),
        ("ellipse", (0.68, 0.65, 0.88, 0.85), 1),
        ("polygon", (0.38, 0.4, 0.52, 0.4, 0.52, 0.53, 0.32, 0.53), 2),
    ],
    "cup": [
        ("polygon", (0.2, 0.25, 0.7, 0.25, 0.64, 0.85, 0.26, 0.85), 0),
        ("ellipse", (0.6, 0.35, 0.92, 0.68), 0),
        ("hole", (0.68, 0.43, 0.84, 0.6), 0),
        ("ellipse", (0.2, 0.2, 0.7, 0.3), 1),
    ],
    "star": [("polygon", _ring(5, 0.48, 0.2), 0)],
    "fish": [
        ("ellipse", (0.05, 0.3, 0.75, 0.7), 0),
        ("polygon", (0.68, 0.5, 0.97, 0.25, 0.97, 0.75), 1),
        ("ellipse", (0.16, 0.42, 0.24, 0.5), 2),
    ],
    "clock": [
        ("ellipse", (0.05, 0.05, 0.95, 0.95), 0),
        ("ellipse", (0.13, 0.13, 0.87, 0.87), 1),
        ("line", (0.5, 0.5, 0.5, 0.2), 2),
        ("line", (0.5, 0.5, 0.72, 0.58), 2),
    ],
    "ladder": [("line", (0.3, 0.02, 0.3, 0.98), 0), ("line", (0.7, 0.02, 0.7, 0.98), 0)]
    + [("line", (0.3, y, 0.7, y), 0) for y in (0.15, 0.32, 0.5, 0.68, 0.85)],
    "umbrella": [
        ("polygon", (0.05, 0.5, 0.15, 0.25, 0.5, 0.08, 0.85, 0.25, 0.95, 0.5), 0),
        ("line", (0.5, 0.1, 0.5, 0.9), 1),
        ("line", (0.5, 0.9, 0.62, 0.9), 1),
        ("line", (0.62, 0.9, 0.62, 0.8), 1),
    ],
    "glasses": [
        ("ellipse", (0.02, 0.35, 0.42, 0.7), 0),
        ("ellipse", (0.58, 0.35, 0.98, 0.7), 0),
        ("hole", (0.09, 0.41, 0.36, 0.64), 0),
        ("hole", (0.65, 0.41, 0.92, 0.64), 0),
        ("line", (0.4, 0.48, 0.6, 0.48), 0),
    ],
    "bottle": [
        ("polygon", (0.42, 0.02, 0.58, 0.02, 0.58, 0.3, 0.72, 0.45, 0.72, 0.98, 0.28, 0.98, 0.28, 0.45, 0.42, 0.3), 0),
        ("polygon", (0.28, 0.55, 0.72, 0.55, 0.72, 0.8, 0.28, 0.8), 1),
    ],
    "chair": [
        ("line", (0.25, 0.05, 0.25, 0.95), 0),
        ("polygon", (0.22, 0.5, 0.8, 0.5, 0.8, 0.6, 0.22, 0.6), 0),
        ("line", (0.77, 0.55, 0.77, 0.95), 0),
        ("polygon", (0.22, 0.1, 0.32, 0.1, 0.32, 0.5, 0.22, 0.5), 1),
    ],
}
"""Twelve classes."""


@cache
def _backgrounds() -> list[Image.Image]:
    return [Image.fromarray(image) for image in sklearn_images.photos()]


def _drawn(thing: str, side: int, chance: np.random.Generator) -> Image.Image:
    """The thing alone, on nothing."""
    canvas = Image.new("RGBA", (side, side), (0, 0, 0, 0))
    draw = ImageDraw.Draw(canvas)
    colours = [tuple(int(v) for v in chance.integers(0, 256, 3)) for _ in range(3)]
    for kind, points, colour in THINGS[thing]:
        at = [side * value for value in points]
        fill = (*colours[colour], 255)
        if kind == "polygon":
            draw.polygon(at, fill=fill)
        elif kind == "line":
            draw.line(at, fill=fill, width=max(2, side // 14))
        else:
            draw.ellipse(at, fill=fill if kind == "ellipse" else (0, 0, 0, 0))
    return canvas.rotate(float(chance.uniform(-25, 25)), Image.Resampling.BICUBIC)


def rendered_photo(thing: str, chance: np.random.Generator, size: tuple[int, int] = (300, 200)) -> Image.Image:
    """One photo of a thing, `size` wide and high."""
    width, height = size
    background = _backgrounds()[chance.integers(2)]
    zoom = chance.uniform(1.0, min(background.width / width, background.height / height))
    box_width, box_height = int(width * zoom), int(height * zoom)
    left = int(chance.integers(background.width - box_width + 1))
    top = int(chance.integers(background.height - box_height + 1))
    photo = background.crop((left, top, left + box_width, top + box_height)).resize(size, Image.Resampling.BILINEAR)
    if chance.integers(2):
        photo = photo.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    side = int(height * chance.uniform(0.45, 0.95))
    drawn = _drawn(thing, side, chance)
    middle = (width - side) / 2 + (height - side / 2) / 2 * chance.uniform(-1, 1)  # most of it in the middle square
    photo.paste(drawn, (int(middle), int(chance.integers(height - side + 1))), drawn)
    if chance.integers(2):
        photo = photo.filter(ImageFilter.GaussianBlur(float(chance.uniform(0, 1.2))))
    noise = chance.normal(0, 6, (height, width, 3))
    return Image.fromarray((np.asarray(photo) + noise).clip(0, 255).astype(np.uint8))


def write_photos(
    folder: Path, things: list[str], per_class: int, seed: int = 0, size: tuple[int, int] = (300, 200)
) -> Path:
    """JPEG files, a folder a class; each class has photos of its own, whatever others there are."""
    for thing in things:
        (folder / thing).mkdir(parents=True, exist_ok=True)
        chance = np.random.default_rng([seed, list(THINGS).index(thing)])
        for number in range(per_class):
            rendered_photo(thing, chance, size).save(folder / thing / f"{number:04d}.jpg", quality=88)
    return folder
