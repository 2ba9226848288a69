"""Options of commands that make lists over blocks of users."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from fairhorizon.cli.engine_options import jobs_option, takes_engine

if TYPE_CHECKING:
    from fairhorizon.limits.resolved import ResolvedLimit
    from fairhorizon.model.blocks import ListsOfRun
    from fairhorizon.parallel.engine import TaskEngine
    from fairhorizon.recommenders.base import Recommender
    from fairhorizon.recommenders.served import Served
    from fairhorizon.vocabulary import Protocol

JOBS = jobs_option("blocks of users that are served", "1: in this process")


def takes_blocks(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of an engine; --jobs is the number of blocks, by default 1."""
    return takes_engine(command, jobs=JOBS, default=1)


def lists_of(
    run: Path,
    k: int,
    protocol: "Protocol | None",
    cache_dir: Path | None,
    level: float | None,
    bound: "Sequence[ResolvedLimit]",
    **more: Any,
) -> "ListsOfRun":
    """Which lists a command asks for; a level counts where there are no limits."""
    from fairhorizon.model.blocks import ListsOfRun

    served_at = None if bound else level
    return ListsOfRun(run, k, protocol, cache_dir, served_at, tuple(bound), **more)


def served(
    lists: "ListsOfRun", model: "Recommender", n_users: int, engine: "TaskEngine"
) -> "Served | None":
    """The lists, if blocks of users make them; None: this process has to."""
    if engine.workers == 1:
        return None
    from fairhorizon.model.blocks import served_in_blocks

    made = served_in_blocks(lists, model, n_users, engine)
    if made is None:
        typer.echo(
            f"note: {model.method} makes these lists in one process (--jobs changes nothing)",
            err=True,
        )
        return None
    typer.echo(f"{made}", err=True)
    return made.served
