"""Commands for bundles: info, rename, merge, forget, promote, rollback, export."""

import shlex
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foster.cli.options import Bundle, Device, IsJson, IsPromoting, NewBundle, Plugins
from foster.errors import DataError, FolderError, FosterError, SettingsError
from foster.system import output
from foster.system.counts import counted, size_text

if TYPE_CHECKING:
    from foster.bundle.promotion import Promotion
    from foster.learner.learner import Learner
    from foster.learner.reports import MendReport


def info(
    bundle: Bundle,
    has_classes: Annotated[
        bool, typer.Option("--classes", help="Also show every class of the last learn, before and after it.")
    ] = False,
    sheet: Annotated[
        Path | None, typer.Option(metavar="SHEET.png", help="Draw all images that are kept, with their ids.")
    ] = None,
    is_json: IsJson = False,
) -> None:
    """Show the content of a bundle: classes, network, memory, history.

    Example: foster info bundles/current --classes
    """
    from foster.bundle.folder import read_manifest
    from foster.cli import texts

    if sheet is not None:
        typer.echo(_draw_sheet(bundle, sheet), err=is_json)
        if not (has_classes or is_json):
            return
    manifest = read_manifest(bundle)
    text = output.escaped(manifest.text()) if is_json else texts.info_text(manifest, bundle)
    if has_classes and not is_json:
        text += texts.classes_text(manifest.history)
    output.echo(text, nl=False)


def _draw_sheet(bundle: Path, sheet: Path) -> str:
    """Draw all kept images. Returns a line that says how many."""
    from foster.bundle.folder import read_bundle
    from foster.reports.contact_sheet import check_place, draw_sheet

    check_place(sheet)
    whole = read_bundle(bundle)
    if not whole.manifest.exemplars:
        raise DataError(f"'{bundle}' keeps no photos, so there is nothing to draw")
    draw_sheet(whole, sheet)
    return f"{sheet}: {counted(len(whole.manifest.exemplars), 'image')} with their ids"


def rename(
    old: Bundle,
    name: Annotated[str, typer.Argument(metavar="OLD", help="The present name of the class.")],
    new_name: Annotated[str, typer.Argument(metavar="NEW", help="The new name of the class.")],
    bundle: NewBundle,
    is_promoting: IsPromoting = False,
    plugins: Plugins = None,
) -> None:
    """Give a class another name, in a new bundle that is otherwise the same. The old bundle is not changed.

    Example: foster rename bundles/current cat tabby --bundle bundles/new
    """
    mend(old, bundle, lambda learner: learner.rename(name, new_name), is_promoting)


def merge(
    old: Bundle,
    names: Annotated[list[str], typer.Argument(metavar="CLASS", help="Two classes or more.")],
    into: Annotated[str, typer.Option(metavar="NAME", help="The class that they become; may be one of them.")],
    bundle: NewBundle,
    is_promoting: IsPromoting = False,
    device: Device = "auto",
    plugins: Plugins = None,
) -> None:
    """Merge several classes into one, in a new bundle, without training. The old bundle is not changed.

    In closed form the result is the same as if their photos had been learned as one class. A trained network gets one
    output that approximates the sum of the old ones. The accuracy before and after is measured and printed.

    Example: foster merge bundles/current cat dog --into pet --bundle bundles/new
    """
    mend(old, bundle, lambda learner: learner.merge(names, into), is_promoting, device)


def forget(
    old: Bundle,
    bundle: NewBundle,
    names: Annotated[list[str] | None, typer.Argument(metavar="CLASS", help="The classes to forget.")] = None,
    images: Annotated[
        list[str] | None,
        typer.Option(
            "--image",
            metavar="PHOTO",
            help="A photo to forget: its file, or its id as 'foster info --sheet' draws it; may be repeated.",
        ),
    ] = None,
    is_promoting: IsPromoting = False,
    device: Device = "auto",
    plugins: Plugins = None,
) -> None:
    """Remove classes or single images, in a new bundle. The old bundle is not changed.

    In closed form nothing of a forgotten class remains in the new bundle, unless features_per_class is smaller than its
    number of photos: then its part in the sums is estimated. A trained network keeps its backbone, whose weights were
    trained on it.

    Example: foster forget bundles/current owl --bundle bundles/new
    """
    if bool(names) == bool(images):
        raise SettingsError("name the classes to forget, or the images (--image PHOTO), not both")
    mend(
        old,
        bundle,
        lambda learner: learner.remove_photos(*images) if images else learner.forget(*(names or ())),
        is_promoting,
        device,
    )


def mend(
    old: Path, bundle: Path, change: "Callable[[Learner], MendReport]", is_promoting: bool, device: str = "cpu"
) -> None:
    """Load `old`, change it, and write the result as `bundle`, whole or not at all."""
    from foster.bundle.folder import check_free, real_folder, remove_unfinished
    from foster.bundle.promotion import check_promotable
    from foster.cli.texts import mend_text
    from foster.learner.learner import Learner
    from foster.learner.work_folder import WorkFolder

    check_free(bundle)
    if is_promoting:
        check_promotable(bundle)
    source = real_folder(old)  # before a link to it moves
    learner = Learner.load(source, device=device)
    report = change(learner)
    with WorkFolder.beside(bundle).held():
        remove_unfinished(bundle)
        learner.save(bundle)
    show(mend_text(report))
    gone = output.listed(report.forgotten) or ("these photos" if report.removed else "")
    hint = f"to remove {gone} completely, delete {source} and the bundles before it, too"
    conclude(bundle, is_promoting, *([hint] if gone else []))


def show(text: str) -> None:
    """Print text. If that fails, the bundle is still written."""
    with suppress(OSError, ValueError):
        output.echo(text, nl=False)


def conclude(bundle: Path, is_promoting: bool, *before: str) -> None:
    """Promote a saved bundle if `is_promoting`, and print the lines `before`, its content and the next commands."""
    from foster.bundle.folder import folder_bytes, read_manifest
    from foster.cli.texts import promotion_text

    manifest, name = read_manifest(bundle), shlex.quote(str(bundle))
    num_exemplars = sum(entry.use == "exemplars" for entry in manifest.exemplars)
    size = size_text(folder_bytes(bundle))
    what = f"{counted(len(manifest.classes), 'class')}, {counted(num_exemplars, 'photo')} kept, {size}"
    lines = [*before, f"{bundle}: {what}"]
    if is_promoting:
        try:
            lines.append(promotion_text(promote_bundle(bundle)))
        except FosterError as error:
            output.show(*lines)
            raise FolderError(f"'{bundle}' is saved, but not promoted: {error}; then: foster promote {name}") from None
    lines.append(f"next: foster predict {name} IMAGES, or foster learn MORE --from {name} --bundle NEXT")
    output.show(*lines)


def promote_bundle(bundle: Path) -> "Promotion":
    """Point the link at a bundle that can be loaded and answers in numbers."""
    from foster.bundle.promotion import promote as move
    from foster.learner.learner import Learner

    return move(bundle, check=lambda folder: Learner.load(folder).try_out())


def promote(bundle: Bundle, plugins: Plugins = None) -> None:
    """Load the bundle as 'serve' does, try it on two images, and point the link 'current' beside it at the bundle.

    Example: foster promote bundles/february
    """
    from foster.cli.texts import promotion_text

    moved = promote_bundle(bundle)
    output.show(promotion_text(moved))


def rollback(
    path: Annotated[
        Path, typer.Argument(metavar="LINK_OR_FOLDER", help="The link 'current', or the folder of bundles.")
    ] = Path(),
) -> None:
    """Point the link 'current' back at the bundle that was in use before.

    Example: foster rollback bundles
    """
    from foster.bundle.promotion import rollback as move
    from foster.cli.texts import promotion_text

    moved = move(path)
    output.show(promotion_text(moved))


def export(
    bundle: Bundle,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that ends in .onnx.")],
    plugins: Plugins = None,
) -> None:
    """Write the network for other programs, with preprocessing and labels, and check it against PyTorch.

    Example: foster export bundles/current classifier.onnx
    """
    from foster.bundle.folder import check_outside
    from foster.learner.export import check_target
    from foster.learner.learner import Learner

    check_outside(file)
    check_target(file)  # before anything is loaded
    learner = Learner.load(bundle, device="cpu")
    typer.echo(f"exporting and checking {file} ...", err=True)
    report = learner.export(file)
    what = (
        f"{report.file}: {size_text(report.num_bytes)}, input uint8 [batch, height, width, 3]; "
        f"checked on {report.num_checked} images, "
        f"probabilities differ from PyTorch by {report.largest_difference:.1g} at most"
    )
    output.show(what, f"{report.facts_file}: labels and preprocessing; docs/photos.md shows a program that uses both")
