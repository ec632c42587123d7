"""The command `foster`: it parses, hands over, and prints errors as one line. No logic, and no torch at import."""

import sys
from typing import Annotated

import typer

from foster.cli import bundles, experiments, listing, sweeping
from foster.errors import FosterError
from foster.stopping import Stopped

app = typer.Typer(
    name="foster",
    help="Class-incremental learning: learn new classes without the old data, without forgetting, without growing.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        from foster import __version__

        typer.echo(f"foster {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


experiments.add_commands(app)
listing.add_commands(app)
sweeping.add_commands(app)
bundles.add_commands(app)


def main() -> None:
    """Run the command; a problem that the user can solve becomes one line and an exit code."""
    try:
        app()
    except FosterError as error:
        print(f"foster: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(error.exit_code)
    except Stopped as stopped:
        print(f"foster: {stopped}", file=sys.stderr)
        sys.exit(stopped.exit_code)
    except KeyboardInterrupt:
        print("foster: interrupted", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our output left, as `head` does: nothing is wrong.
        sys.stderr.close()
        sys.exit(141)
