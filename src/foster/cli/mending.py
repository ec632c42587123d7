"""Commands that mend a classifier without training: rename, merge, forget."""

from typing import Annotated

import typer

from foster.cli.options import Bundle, Device, IsPromoting, NewBundle, Plugins

MaxDrop = Annotated[
    float,
    typer.Option(metavar="POINTS", min=0, help="Write nothing if the classes that stay lose more accuracy than this."),
]


def rename(
    old: Bundle,
    name: Annotated[str, typer.Argument(metavar="OLD", help="The class as it is called now.")],
    new_name: Annotated[str, typer.Argument(metavar="NEW", help="What it will be called.")],
    bundle: NewBundle,
    is_promoting: IsPromoting = False,
    plugins: Plugins = None,
) -> None:
    """Give a class another name: a new bundle that is otherwise the same. The old one is not changed."""
    from foster.cli.mend_actions import mend_bundle

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
    from foster.cli.mend_actions import mend_bundle
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
    from foster.cli.mend_actions import mend_bundle
    from foster.learner.mending import forgetting

    mend_bundle(
        old,
        bundle,
        lambda learner: learner.forget(*names, max_drop=max_drop),
        is_promoting,
        lambda knowledge: forgetting(knowledge, names),
        device,
    )
