"""Commands for your own photos: learn, predict, evaluate, export, info, exemplars, promote, rollback, and without
training rename, merge, forget."""

from pathlib import Path
from typing import Annotated

import typer

from foster.cli.options import (
    Bundle,
    Device,
    IsJson,
    IsJsonLines,
    IsPromoting,
    NewBundle,
    Photos,
    Plugins,
    Quiet,
    Recipes,
    all_changes,
    leave_busy_cores,
    unknown_choice,
)

MaxDrop = Annotated[
    float,
    typer.Option(metavar="POINTS", min=0, help="Write nothing if the classes that stay lose more accuracy than this."),
]


def _print_keys(is_wanted: bool) -> None:
    if is_wanted:
        from foster.cli.bundle_texts import keys_text

        typer.echo(keys_text(), nl=False)
        raise typer.Exit


def learn(
    source: Photos,
    bundle: NewBundle,
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Settings to change, e.g. memory_total=500 (see --keys)."),
    ] = None,
    old: Annotated[
        Path | None, typer.Option("--from", metavar="OLD", help="The bundle to continue; it is never changed.")
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help="fast, standard or paper: how long to train; by default as in the old bundle, else standard."
        ),
    ] = None,
    recipes: Recipes = None,
    max_drop: Annotated[
        float | None,
        typer.Option(
            metavar="POINTS",
            min=0,
            help="Write no bundle if the known classes lose more points than this, or the new ones by compression; "
            "what was learned is kept as NEW.refused.",
        ),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(metavar="M", min=0.1, help="Fit the training to about this many minutes."),
    ] = None,
    is_promoting: IsPromoting = False,
    is_restarting: Annotated[
        bool, typer.Option("--restart", help="Discard what an interrupted learn has saved, and start anew.")
    ] = False,
    quiet: Quiet = False,
    keys: Annotated[
        bool, typer.Option("--keys", callback=_print_keys, is_eager=True, help="List all settings and exit.")
    ] = False,
    plugins: Plugins = None,
) -> None:
    """Learn new classes, and more images of known ones, from photos; write a bundle that can go on learning.

    The photos may be deleted afterwards: the bundle keeps a few of each class. Where it is interrupted, the same
    command continues.
    """
    from foster.cli.bundle_actions import learn_bundle

    changes = all_changes(overrides, recipes)
    learn_bundle(source, changes, bundle, old, preset, max_drop, is_promoting, is_restarting, quiet, plugins, minutes)


def predict(
    bundle: Bundle,
    images: Annotated[list[Path], typer.Argument(metavar="IMAGE_OR_FOLDER", help="Image files, or folders of them.")],
    top: Annotated[int, typer.Option(min=1, metavar="K", help="How many classes to show for each image.")] = 1,
    is_json: IsJsonLines = False,
    is_csv: Annotated[bool, typer.Option("--csv", help="CSV with a header.")] = False,
    unknown_below: Annotated[
        float | None,
        typer.Option(metavar="P", min=0, max=1, help="Answer 'unknown' where the confidence is below P (0 to 1)."),
    ] = None,
    unknown: Annotated[
        str | None,
        typer.Option(
            metavar="auto",
            help="Answer 'unknown' for what is stranger than 95 % of the photos that were held out.",
        ),
    ] = None,
    device: Device = "auto",
    plugins: Plugins = None,
) -> None:
    """Tell what images show, in the order given; an image that cannot be read gets an error entry."""
    from foster.cli.bundle_actions import predict_images

    predict_images(bundle, images, top, is_json, is_csv, unknown_choice(unknown, unknown_below), device)


def evaluate(
    bundle: Bundle,
    source: Photos,
    is_json: IsJson = False,
    device: Device = "auto",
    plugins: Plugins = None,
) -> None:
    """Measure the accuracy on labelled images that were not learned, class by class."""
    from foster.cli.learn_texts import evaluation_text
    from foster.learner.learner import Learner
    from foster.system.output import echo, json_text

    learner = Learner.load(bundle, device=device)
    leave_busy_cores(quiet=is_json)
    report = learner.evaluate(source)
    echo(json_text(report.record()) if is_json else evaluation_text(report), nl=is_json)


def export(
    bundle: Bundle,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that ends in .onnx.")],
    plugins: Plugins = None,
) -> None:
    """Write the network for other programs, with preprocessing and labels, and check it against PyTorch."""
    from foster.cli.bundle_actions import export_bundle

    export_bundle(bundle, file)


def info(
    bundle: Bundle,
    has_classes: Annotated[
        bool, typer.Option("--classes", help="Also show every class of the last learn, before and after it.")
    ] = False,
    is_json: IsJson = False,
) -> None:
    """Show what a bundle holds: classes, network, memory, history."""
    from foster.bundle.manifest import read_manifest
    from foster.cli.bundle_texts import classes_text, info_text
    from foster.system.output import echo, escaped

    manifest = read_manifest(bundle)
    text = escaped(manifest.text()) if is_json else info_text(manifest, bundle)
    if has_classes and not is_json:
        text += classes_text(manifest.history)
    echo(text, nl=False)


def exemplars(
    bundle: Bundle,
    show: Annotated[Path | None, typer.Option(metavar="SHEET.png", help="Draw all exemplars with their ids.")] = None,
    remove: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID", help="Delete an image from the bundle for good (ID or CLASSID/ID); may be repeated."
        ),
    ] = None,
) -> None:
    """List, draw or remove the images that a bundle keeps."""
    from foster.cli.bundle_actions import show_exemplars

    show_exemplars(bundle, show, remove or [])


def promote(bundle: Bundle, plugins: Plugins = None) -> None:
    """Load the bundle as 'serve' does, let it answer once, and point the link 'current' beside it at it."""
    from foster.cli.bundle_actions import promote_bundle
    from foster.cli.bundle_texts import promotion_text
    from foster.system.output import report

    moved = promote_bundle(bundle)
    report(promotion_text(moved), path=moved.link)


def rollback(
    path: Annotated[
        Path, typer.Argument(metavar="LINK_OR_FOLDER", help="The link 'current', or the folder of bundles.")
    ] = Path(),
) -> None:
    """Point the link 'current' back at the bundle before."""
    from foster.bundle.promotion import rollback as move
    from foster.cli.bundle_texts import promotion_text
    from foster.system.output import report

    moved = move(path)
    report(promotion_text(moved), path=moved.link)


def rename(
    old: Bundle,
    name: Annotated[str, typer.Argument(metavar="OLD", help="The class as it is called now.")],
    new_name: Annotated[str, typer.Argument(metavar="NEW", help="What it will be called.")],
    bundle: NewBundle,
    is_promoting: IsPromoting = False,
    plugins: Plugins = None,
) -> None:
    """Give a class another name: a new bundle that is otherwise the same. The old one is not changed."""
    from foster.cli.bundle_actions import mend_bundle

    mend_bundle(old, bundle, lambda learner: learner.rename(name, new_name), is_promoting)


def merge(
    old: Bundle,
    names: Annotated[list[str], typer.Argument(metavar="CLASS", help="Two classes or more.")],
    into: Annotated[str, typer.Option(metavar="NAME", help="The class that they become; may be one of them.")],
    bundle: NewBundle,
    max_drop: MaxDrop = 1.0,
    is_promoting: IsPromoting = False,
    device: Device = "auto",
    plugins: Plugins = None,
) -> None:
    """Make one class of several: a new bundle, without training. The old one is not changed.

    The probability of the new class is the sum of those of its parts, as nearly as one output of the network gives it;
    how near that is, and what the classes lost, is measured on held-out photos and printed.
    """
    from foster.cli.bundle_actions import mend_bundle
    from foster.learner.mending import merging

    mend_bundle(
        old,
        bundle,
        lambda learner: learner.merge(names, into, max_drop=max_drop),
        is_promoting,
        lambda knowledge: merging(knowledge, names, into),
        device,
    )


def forget(
    old: Bundle,
    names: Annotated[list[str], typer.Argument(metavar="CLASS", help="The classes to forget.")],
    bundle: NewBundle,
    max_drop: MaxDrop = 1.0,
    is_promoting: IsPromoting = False,
    device: Device = "auto",
    plugins: Plugins = None,
) -> None:
    """Take classes out: a new bundle without their outputs and their photos. The old one is not changed.

    The backbone's weights were trained on them and stay as they are; what can still be told by them is printed.
    """
    from foster.cli.bundle_actions import mend_bundle
    from foster.learner.mending import forgetting

    mend_bundle(
        old,
        bundle,
        lambda learner: learner.forget(*names, max_drop=max_drop),
        is_promoting,
        lambda knowledge: forgetting(knowledge, names),
        device,
    )
