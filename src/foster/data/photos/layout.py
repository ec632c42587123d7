"""Whether the folders in a folder of photos are classes, or lie one level above them."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from foster.data.photos.find import shown, some
from foster.errors import DataError

SPLIT_NAMES = frozenset({"train", "training", "test", "testing", "val", "valid", "validation"})
MONTH = "jan(uary)?|feb(ruary)?|mar(ch)?|apr(il)?|may|june?|july?|aug(ust)?|sep(tember)?|oct(ober)?|(nov|dec)(ember)?"
DATE = re.compile(rf".*(19|20)\d\d.*|\d{{3}}\w{{5}}|{MONTH}", re.IGNORECASE)
"""What photos are sorted by that is no class: 2024, 17.5.2024, January, or a camera's 100CANON."""


def inner_folders(folder: Path, images: Iterable[Path]) -> tuple[str, ...]:
    """The subfolders that hold the `images` below a folder; none where it holds one of them itself."""
    places = dict.fromkeys(image.relative_to(folder).parts[:-1] for image in images)
    return () if () in places else tuple(dict.fromkeys(place[0] for place in places))


def doubt_of(inner: Mapping[Path, Sequence[str]], title: str) -> str:
    """What to look at where folders that are taken for classes hold nothing but folders (`inner_folders`); empty where
    they look like classes. The parts of a dataset, such as `test`, are none: a DataError says so."""
    parts = [entry for entry in inner if entry.name.lower() in SPLIT_NAMES]
    if len(parts) == len(inner) or (parts and all(inner.values())):
        training = max(inner, key=lambda entry: (entry.name.lower().startswith("train"), entry not in parts))
        raise DataError(
            f"{title} holds the parts of a dataset ({some([entry.name for entry in inner])}), not classes; "
            f"give one part, for example '{shown(training)}'"
        )
    for part in parts:
        if inner[part]:
            found = f"'{shown(part)}' holds folders ({some(inner[part])})"
            raise DataError(f"{found}, so it is no class but a part of a dataset; move it out of {title}")
    names = [name for names in inner.values() for name in names]
    are_dates = all(DATE.fullmatch(entry.name) for entry in inner) and not any(map(DATE.fullmatch, names))
    has_one_each = len(names) == len(inner)  # a class with all its photos in 'images'
    if not all(inner.values()) or (has_one_each and not are_dates) or all(map(DATE.fullmatch, names)):
        return ""
    first = next(iter(inner))
    taken = some([entry.name for entry in inner])
    if are_dates and not has_one_each:
        raise DataError(
            f"the folders in {title} are dates ({taken}), and the classes ({some(inner[first])}) lie inside them; "
            f"give one date at a time, '{shown(first)}' first and each as a learn of its own, or put the photos of "
            "each class into one folder"
        )
    return (
        f"{title} holds only folders of folders, and {taken} are taken for the classes; if the classes are "
        f"{some(inner[first])}, give '{shown(first)}' in its place"
    )
