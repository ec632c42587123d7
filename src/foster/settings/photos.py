"""What photos of many sizes are, and which of them a dataset takes."""

from typing import Literal

from pydantic import Field

from foster.settings.fit import Frozen


class PhotoSettings(Frozen):
    """The datasets `imagenet1000`, `imagenet100` and `folder`: where their photos are, and how large they become."""

    image_size: int = Field(default=224, ge=8, le=1024)
    """The side of the squares that a network sees."""
    short_side: int | None = Field(default=None, ge=0, le=4096)
    """Photos are kept with a shorter side of at most so many pixels; 0 keeps their size. By default 8/7 of image_size,
    as in the field's tests: 256 for 224."""
    subset: str = ""
    """A file with the class folders to take, one a line; for imagenet100 in place of the field's rule."""
    train_list: str = ""
    """dataset=folder: a file with `path label` on each line, in place of folders for the classes."""
    test_list: str = ""
    """dataset=folder: the same for test photos."""
    test_share: float = Field(default=0.0, ge=0, lt=1)
    """dataset=folder: the share of each class's photos that are test photos, drawn by the seed, where there is no
    folder of them."""
    exemplars: Literal["original", "reencoded"] = "original"
    """Exemplars are kept as the files they came from, or once more encoded at the size in which photos are kept."""
    max_unreadable: int | None = Field(default=None, ge=0)
    """So many photos that cannot be read are left out; by default a tenth, of few photos three, and at most 100."""

    @property
    def kept_side(self) -> int:
        """The shorter side of photos as they are kept; 0 for any."""
        return round(self.image_size * 8 / 7) if self.short_side is None else self.short_side
