"""The command line: all commands, and the one place where errors become messages."""

import logging
import os
import sys
import warnings
from collections.abc import Callable, Sequence

import typer

from fairhorizon import __version__
from fairhorizon.cli.audit import audit
from fairhorizon.cli.config import missing_key
from fairhorizon.cli.data import data_commands, init, methods
from fairhorizon.cli.fit import fit
from fairhorizon.cli.levels import levels
from fairhorizon.cli.lists import evaluate, recommend
from fairhorizon.cli.longterm import longterm
from fairhorizon.cli.progress import STOPPED
from fairhorizon.cli.reproduce import reproduce
from fairhorizon.cli.service import (
    backup,
    export,
    forget,
    key_commands,
    ledger,
    load,
    restore,
    serve,
)
from fairhorizon.cli.studies import compare, demo, efficiency, frontier
from fairhorizon.cli.tune import tune
from fairhorizon.errors import FairHorizonError

NAME = "fairhorizon"

COMMANDS: tuple[Callable[..., None], ...] = (
    *(init, fit, evaluate, recommend, compare, frontier, levels, longterm),
    *(reproduce, efficiency, demo, audit, tune, methods),
    *(serve, load, export, backup, restore, forget, ledger),
)

app = typer.Typer(
    help="Fair recommendation over time: policies that keep item exposure within a limit.",
    pretty_exceptions_enable=False,
)
app.add_typer(data_commands, name="data")
for command in COMMANDS:
    app.command()(command)
app.add_typer(key_commands, name="keys")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"{NAME} {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    """Options before the command."""


def main() -> None:
    """Run the command line."""
    # The tensors are small: a second thread costs more than it gains, above all on a busy machine.
    # Torch reads this when it is first imported, which no module above does.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    logger = logging.getLogger(NAME)  # for example, what is being downloaded
    logger.setLevel(logging.INFO)
    logger.addHandler(logging.StreamHandler())
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """The exit code: 0 done, 1 an error that the user can fix, 2 wrong usage, 3 a limit was
    missed, 130 stopped.

    An error is printed as one line on stderr.
    """
    warnings.showwarning = lambda message, *_: print(f"note: {message}", file=sys.stderr)
    try:
        code = app(arguments or ["--help"], prog_name=NAME, standalone_mode=False) or 0
    except typer.TyperException as error:
        return complain(_usage(error), error.exit_code)
    except FairHorizonError as error:
        return complain(str(error), 1)
    except OSError as error:
        return complain(_place(error), 1)
    if code == STOPPED:
        print("stopped", file=sys.stderr)
    return int(code)


def complain(message: str, code: int) -> int:
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    return code


def _usage(error: typer.TyperException) -> str:
    context = getattr(error, "ctx", None)
    key = missing_key(error)
    or_file = f"give it, or {key} in a --config FILE; " if key else ""
    remedy = f" ({or_file}see {context.command_path} --help)" if context else ""
    return error.format_message() + remedy


def _place(error: OSError) -> str:
    file = error.filename2 or error.filename  # of a rename: the target
    where = f"{file}: " if file else ""
    return f"{where}{error.strerror or error} (check the path, your permissions and the free space)"
