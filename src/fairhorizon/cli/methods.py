"""fairhorizon methods: list the methods, and the settings of one."""

from typing import Annotated

import typer

from fairhorizon.cli import options as shared
from fairhorizon.cli.folders import check_file

NAME = (
    "A ranker (ease), a variant of one (ease:recent), a re-ranker (quota), an agent (lird), "
    "a preset (fcpo:paper) or a ranker with a re-ranker (ease+quota). "
    "Without it all methods are listed."
)


def methods(
    name: Annotated[str | None, typer.Argument(help=NAME, show_default=False)] = None,
    json_file: shared.JsonFile = None,
) -> None:
    """List all methods, or the settings of one: default, allowed values and meaning."""
    from dataclasses import asdict

    from rich.console import Console

    from fairhorizon.files import write_json
    from fairhorizon.methods import MethodError
    from fairhorizon.report import catalogue

    check_file(json_file)
    console = Console()  # at the width of the terminal
    if name is None:
        entries = catalogue.all_methods()
        if json_file is not None:
            write_json(json_file, {"methods": [asdict(entry) for entry in entries]})
        console.print(catalogue.methods_table(entries))
        typer.echo("@: NAME@LEVEL sets how fair it is. A re-ranker follows a ranker: ease+quota.")
        typer.echo("Settings of one method: fairhorizon methods NAME")
        return
    try:
        method = catalogue.describe(name)
    except MethodError as error:
        raise typer.BadParameter(str(error), param_hint="NAME") from None
    if json_file is not None:
        write_json(json_file, method.to_json())
    heading = f"{method.entry.name} ({method.entry.kind.value}): {method.entry.summary}"
    console.print(heading, highlight=False, markup=False)
    if method.settings:
        console.print(catalogue.settings_table(method))
    else:
        typer.echo("It has no settings.")
    if method.level is not None:
        typer.echo(f"Level: {method.level}")
    typer.echo(f"Example: {method.example}")
