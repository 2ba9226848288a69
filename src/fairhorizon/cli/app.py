"""The commands put together, and the one place where errors become messages."""

import sys
import warnings

import typer

from fairhorizon import __version__
from fairhorizon.cli.data import data_commands
from fairhorizon.cli.demo import demo
from fairhorizon.cli.evaluate import evaluate
from fairhorizon.cli.fit import fit
from fairhorizon.cli.recommend import recommend
from fairhorizon.errors import FairHorizonError

app = typer.Typer(
    help="Fair recommendation over time: policies that keep item exposure within a limit.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.add_typer(data_commands, name="data")
for command in (fit, evaluate, recommend, demo):
    app.command()(command)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fairhorizon {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and leave."
    ),
) -> None:
    """Options before the command."""


def main() -> None:
    """Run the command line: a mistake that the user can mend ends in one line and exit code 1."""
    warnings.showwarning = lambda message, *_: print(f"note: {message}", file=sys.stderr)
    try:
        app()
    except FairHorizonError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        sys.exit(130)
