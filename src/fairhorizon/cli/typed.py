"""The command line as it was typed, to be shown and run again."""

import shlex
from collections.abc import Collection, Iterator

import typer

COMMAND_LINE = "COMMANDLINE"  # not a default


def typed_command(context: typer.Context) -> str:
    return shlex.join(["fairhorizon", str(context.info_name), *typed(context)])


def typed(context: typer.Context, leave_out: Collection[str] = ()) -> Iterator[str]:
    """The arguments, without the parameters of the names left out."""
    for parameter in context.command.params:
        name = str(parameter.name)
        source = context.get_parameter_source(name)
        if name in leave_out or source is None or source.name != COMMAND_LINE:
            continue
        value = context.params[name]
        if parameter.param_type_name == "argument":
            yield str(value)
        elif isinstance(value, bool):
            yield (parameter.opts if value else parameter.secondary_opts)[0]
        else:
            for one in value if isinstance(value, list | tuple) else [value]:
                yield from (parameter.opts[0], str(one))
