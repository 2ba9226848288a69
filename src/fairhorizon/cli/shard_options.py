"""Options of commands that make lists over shards of users."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import typer

from fairhorizon.cli.engine_options import jobs_option, takes_engine

if TYPE_CHECKING:
    from fairhorizon.agents.base import Recommender
    from fairhorizon.agents.served import Served
    from fairhorizon.engines.engine import TaskEngine
    from fairhorizon.experiments.run_shards import ListsOfRun

JOBS = jobs_option("shards of users that are served", "1: in this process")


def takes_shards(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of an engine; --jobs is the number of shards, by default 1."""
    return takes_engine(command, jobs=JOBS, default=1)


def served(
    lists: "ListsOfRun", model: "Recommender", n_users: int, engine: "TaskEngine"
) -> "Served | None":
    """The lists, if shards of users make them; None: this process has to."""
    if engine.workers == 1:
        return None
    from fairhorizon.experiments.run_shards import served_in_shards

    made = served_in_shards(lists, model, n_users, engine)
    if made is None:
        typer.echo(
            f"note: {model.method} makes these lists in one process (--jobs changes nothing)",
            err=True,
        )
        return None
    typer.echo(f"{made}", err=True)
    return made.served
