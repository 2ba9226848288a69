"""Options of commands that run on an engine: which one, where it is, how much at a time."""

import inspect
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairhorizon.cli.declaring import declared
from fairhorizon.vocabulary import EngineName

if TYPE_CHECKING:
    from fairhorizon.parallel.engine import TaskEngine

ENGINE = "Where it runs"


def jobs_option(what: str, default: str = "all cores") -> Any:
    """The option --jobs; what: how the help calls the tasks."""
    return Annotated[
        int | None,
        typer.Option(
            "--jobs",
            min=1,
            help=f"Number of {what} in parallel.",
            show_default=default,
            rich_help_panel=ENGINE,
        ),
    ]


EngineOption = Annotated[
    EngineName,
    typer.Option(
        "--engine",
        help="processes: of this machine. ray: a Ray cluster, or Ray on this machine without "
        "--address.",
        rich_help_panel=ENGINE,
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        "--address",
        help="Ray cluster to connect to: auto (the one that this machine is part of), HOST:PORT "
        "or ray://HOST:PORT.",
        rich_help_panel=ENGINE,
    ),
]
Threads = Annotated[
    int, typer.Option("--threads", min=1, help="Threads of each worker.", rich_help_panel=ENGINE)
]


def chosen_engine(
    jobs: jobs_option("trainings") = None,  # type: ignore[valid-type]
    engine_name: EngineOption = EngineName.PROCESSES,
    address: Address = None,
    threads: Threads = 1,
) -> "TaskEngine":
    """The engine that the options describe; nothing is started before it has something to do."""
    if engine_name is EngineName.RAY:
        from fairhorizon.parallel.engine import ray_engine

        return ray_engine(address, jobs, threads)
    from fairhorizon.parallel.processes import Processes

    if address is not None:
        raise typer.BadParameter("is for --engine ray (give both)", param_hint="--address")
    return Processes(jobs or os.cpu_count() or 1, threads)


def takes_engine(
    command: Callable[..., Any],
    *,
    jobs: Any = None,
    default: int | None = None,
    without: str | None = None,
) -> Callable[..., Any]:
    """Give a command the options of `chosen_engine`; it is called with `engine`, entered.

    jobs, default: the option --jobs and its default, where they differ.
    without: an option that would mean nothing; it has its default.
    """
    options = dict(inspect.signature(chosen_engine).parameters)
    if without is not None:
        del options[without]
    if jobs is not None:
        options["jobs"] = options["jobs"].replace(annotation=jobs, default=default)

    def called(**given: Any) -> Any:
        with chosen_engine(**{name: given.pop(name) for name in options}) as engine:
            return command(**given, engine=engine)

    return declared(command, called, list(options.values()), made=["engine"])
