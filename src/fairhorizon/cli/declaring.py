"""Options that are declared once and given to many commands."""

import functools
import inspect
from collections.abc import Callable, Collection, Sequence
from typing import Any


def declared(
    command: Callable[..., Any],
    called: Callable[..., Any],
    options: Sequence[inspect.Parameter],
    *,
    made: Collection[str] = (),
) -> Callable[..., Any]:
    """`called` in place of the command, with the options of the command and those added.

    `made`: parameters of the command that `called` computes from the options.
    """
    hidden = {*made, *(option.name for option in options)}
    own = [p for p in inspect.signature(command).parameters.values() if p.name not in hidden]
    parameters = [*own, *options]
    # Python requires parameters without a default first
    parameters.sort(key=lambda parameter: parameter.default is not inspect.Parameter.empty)
    functools.update_wrapper(called, command)
    called.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
    )
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return called
