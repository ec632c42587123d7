"""The command `foster`: it parses arguments, calls the library, and prints errors as one line. No torch at import."""

import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from foster.cli import bundles, demo, experiments, listing, photos, reports, serving
from foster.errors import FosterError, words_of
from foster.system.files import user_path
from foster.system.output import drop_unwritable_output, print_stderr
from foster.system.processes import is_first_process
from foster.system.signals import Stopped, ending_on_signals

INTERRUPTED, READER_LEFT = 130, 141
"""The exit codes of a shell for a process that was ended by SIGINT or SIGPIPE."""


@contextmanager
def one_line() -> Iterator[None]:
    """Turn an error that the user can solve into one line and an exit code."""
    try:
        yield
        sys.stdout.flush()
    except FosterError as error:
        _leave(error.exit_code, str(error))
    except Stopped as stopped:
        _leave(stopped.exit_code, str(stopped))
    except KeyboardInterrupt:
        _leave(INTERRUPTED, "interrupted")
    except BrokenPipeError:
        # The program that reads our output has ended, as `head` does: this is no error.
        _leave(READER_LEFT)
    except OSError as error:
        what = f"'{error.filename}'" if error.filename else "the output"
        _leave(FosterError.exit_code, f"cannot read or write {what}: {words_of(error)}")
    except MemoryError as error:
        _leave(FosterError.exit_code, f"out of memory: {words_of(error)}")
    except SystemExit as left:
        # rich, which prints the help, turns a closed pipe into SystemExit.
        if isinstance(left.__context__, BrokenPipeError):
            _leave(READER_LEFT)
        raise


def _leave(exit_code: int, line: str = "") -> NoReturn:
    drop_unwritable_output()
    if line and is_first_process():
        print_stderr(line)
    sys.exit(exit_code)


class Command(TyperCommand):
    """Shows flags in the help without a type: typer would write `<bool>`, as if they took a value."""

    def get_params(self, ctx: Any) -> Any:
        return _without_types_of_flags(super().get_params(ctx))


class Commands(TyperGroup):
    """Catches errors before typer does: typer gives Ctrl-C and a closed pipe other exit codes and no message."""

    def get_params(self, ctx: Any) -> Any:
        return _without_types_of_flags(super().get_params(ctx))

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        with one_line():
            return super().make_context(*args, **kwargs)

    def invoke(self, *args: Any, **kwargs: Any) -> Any:
        with one_line():
            return super().invoke(*args, **kwargs)


def _without_types_of_flags(params: list[Any]) -> list[Any]:
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params


app = typer.Typer(
    name="foster",
    cls=Commands,
    help="Class-incremental learning: learn new classes without the old data, with little forgetting, without growing.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        from foster.version import __version__

        typer.echo(f"foster {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def _with_home_expanded(command: Callable[..., None]) -> Callable[..., None]:
    """The command with `~` expanded in every path. A shell does not expand it in `--out=~/runs`."""

    def expanded(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [expanded(one) for one in value]
        return user_path(value) if isinstance(value, Path) else value

    @functools.wraps(command)
    def called(**arguments: Any) -> None:
        command(**{name: expanded(value) for name, value in arguments.items()})

    return called


PANELS: dict[str, tuple[Callable[..., None], ...]] = {
    "Experiments": (
        *(experiments.run, experiments.resume, experiments.plan, experiments.sweep, experiments.study, demo.demo),
        *(listing.list_, reports.table, reports.figure, reports.report, reports.watch),
    ),
    "Photos": (photos.check, photos.learn, photos.predict, photos.evaluate, photos.label_next),
    "Bundles": (
        *(bundles.info, bundles.rename, bundles.merge, bundles.forget),
        *(bundles.promote, bundles.rollback, bundles.export),
    ),
    "Serving": (serving.serve,),
}
"""The commands in the order of `foster --help`. The last paragraph of a docstring is the example in the help."""


def _add(command: Callable[..., None], panel: str) -> None:
    *paragraphs, example = (inspect.getdoc(command) or "").split("\n\n")
    # A paragraph on one line is wrapped to any width; a paragraph after \b keeps its lines.
    text = "\n\n".join(part if part.startswith("\b") else part.replace("\n", " ") for part in paragraphs)
    name = command.__name__.strip("_").replace("_", "-")
    add = app.command(name, cls=Command, help=text, epilog=example, rich_help_panel=panel)
    add(_with_home_expanded(command))


for _panel, _commands in PANELS.items():
    for _command in _commands:
        _add(_command, _panel)


def main() -> None:
    """Run the command, and exit with its code."""
    with ending_on_signals(), one_line():
        app()
