"""Options that several commands have."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foster.errors import DataError, SettingsError

if TYPE_CHECKING:
    from foster.learner.familiarity import Unknown
    from foster.settings.experiment import Settings

SettingsSource = Annotated[
    str, typer.Argument(metavar="PRESET_OR_TOML", help="A preset's name, a .toml file or a run folder.")
]
Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Settings to change, e.g. method=replay seed=1.")
]
Data = Annotated[Path | None, typer.Option(help="The folder of the data files; by default $FOSTER_DATA, or data.")]
Bundle = Annotated[Path, typer.Argument(metavar="BUNDLE", help="The folder of a bundle, or a link to one.")]
NewBundle = Annotated[Path, typer.Option("--bundle", metavar="NEW", help="The bundle to write; must not exist.")]
IsPromoting = Annotated[bool, typer.Option("--promote", help="Point the link 'current' beside the bundle at it.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]
IsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
IsJsonLines = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress: only warnings and the result.")]
Jobs = Annotated[int, typer.Option(metavar="N", min=1, max=1024, help="How many runs share the CPU.")]
JobsPerGpu = Annotated[int, typer.Option(metavar="N", min=1, max=1024, help="How many runs share each visible GPU.")]
Cluster = Annotated[
    str | None, typer.Option(metavar="ADDRESS", help="Run everything on this Ray cluster; 'local' starts one here.")
]
UnknownBelow = Annotated[
    str | None,
    typer.Option(
        "--unknown",
        metavar="auto|P",
        help="Answer 'unknown' if the confidence is below P (0 to 1), or with 'auto' if a photo differs more from the "
        "known classes than 95 % of the photos on which the bundle was measured.",
    ),
]
IsDryRun = Annotated[bool, typer.Option("--dry-run", help="Check everything, list the runs, start none.")]


def _imported(names: list[str] | None) -> list[str] | None:
    if names:
        from foster.settings.plugins import load_plugins

        load_plugins(names)
    return names


Plugins = Annotated[
    list[str] | None,
    typer.Option(
        "--plugin",
        metavar="MODULE",
        callback=_imported,
        help="A module, or a file, with methods, datasets or backbones of your own; may be repeated.",
    ),
]

TrustsPlugins = Annotated[
    bool,
    typer.Option("--trust-plugins", help="Import the plug-ins that a run folder names; they may be a stranger's code."),
]

AllowsChangedPlugin = Annotated[
    bool, typer.Option("--allow-changed-plugin", help="Continue although a plug-in was edited after the run began.")
]

Recipes = Annotated[
    list[str] | None,
    typer.Option(
        "--recipe",
        metavar="NAME_OR_TOML",
        help="A recipe, which changes settings: one of 'foster list recipes', or a file of your own; may be repeated.",
    ),
]


def _named(text: str) -> Path:
    """The path of a folder or file of photos. An empty path is refused: it would mean the working folder."""
    if not text.strip():
        raise DataError(
            "'' names no photos; give a folder with one subfolder for each class, or a CSV of path and label"
        )
    return Path(text)


Photos = Annotated[
    Path,
    typer.Argument(
        metavar="PHOTOS", parser=_named, help="A folder with one subfolder a class, or a CSV of path and label."
    ),
]


def all_changes(overrides: list[str] | None, recipes: list[str] | None) -> list[str]:
    """The changes of a command: its recipes, then its overrides."""
    return [*(f"recipe={recipe}" for recipe in recipes or ()), *(overrides or [])]


def chosen_settings(
    source: str,
    changes: list[str],
    data: Path | None,
    plugins: list[str] | None = None,
    trusts_plugins: bool = False,
) -> "Settings":
    """The settings of a command. A change that has no effect is refused."""
    from foster.settings.base import check_used
    from foster.settings.experiment import load_settings

    trusts, place = trusts_plugins or None, str(data) if data else None
    settings = load_settings(source, changes, plugins=plugins, trusts_plugins=trusts, data=place)
    check_used(changes, settings)
    return settings


def unknown_choice(unknown: str | None) -> "Unknown":
    """The value of `--unknown`: auto, or a confidence from 0 to 1."""
    if unknown is None:
        return None
    if unknown == "auto":
        return "auto"
    try:
        below = float(unknown)
    except ValueError:
        below = -1.0
    if not 0 <= below <= 1:
        raise SettingsError(f"--unknown takes 'auto' or a confidence from 0 to 1, not '{unknown}'")
    return below
