"""The options of fairhorizon longterm, and what their values mean."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairhorizon.errors import ConfigError
from fairhorizon.vocabulary import Retrain

if TYPE_CHECKING:
    from fairhorizon.limits.language import Limit

LIMITS = "More limits, which FCPO and NAME+control keep together with the first one"
DEFAULT_SHARE, DEFAULT_LAG = 0.4, 50

Steps = Annotated[int, typer.Option(min=1, help="Number of lists per user.")]
ListLength = Annotated[int, typer.Option("--k", min=1, help="Length of a list.")]
AlphaPrime = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=1,
        help="Largest share of the limited group: popular items, or --sensitive.",
        show_default=f"{DEFAULT_SHARE:g}",
    ),
]
RepeatAfter = Annotated[
    int | None,
    typer.Option(
        min=1,
        show_default="never",
        help="Number of steps after which an item may be shown to the same user again.",
    ),
]
WarmUp = Annotated[int, typer.Option(min=0, help="Steps before the limit has to be kept.")]
RelabelEvery = Annotated[
    int,
    typer.Option(min=1, help="Number of steps after which the popular group is computed again."),
]
UpdateEvery = Annotated[
    int, typer.Option(min=1, help="Number of steps after which FCPO learns from the feedback.")
]
RoundLength = Annotated[
    int, typer.Option("--round", min=1, help="Items per user between two re-rankings.")
]
RetrainOption = Annotated[
    Retrain,
    typer.Option(
        help="What is fitted again after every round. rerankers: all that keep a limit, FCPO too."
    ),
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue interrupted runs.")]
Limits = Annotated[
    list[str] | None,
    typer.Option(
        "--limit",
        metavar="GROUP<=SHARE",
        help='A further limit or floor, as in "genre=Drama<=0.3", "seller=small>=0.2", '
        '"gini<=0.8". A plain one on popular replaces --alpha-prime and may say its labels: '
        '"popular<=0.4;labels=moment". Repeatable. docs/limits.md explains the language.',
        rich_help_panel=LIMITS,
    ),
]
LookAhead = Annotated[
    bool,
    typer.Option(
        help="Keep items from entering the popular group where that would break a retrospective "
        "limit. Without this the limit is broken and recovered.",
        rich_help_panel=LIMITS,
    ),
]


def with_list_length(settings: dict[str, Any], k: int) -> dict[str, Any]:
    """The settings, with agents trained for lists of the length they will serve."""
    own = {}
    for agent in ("fcpo", "lird"):
        own[agent] = {"list_length": k, **settings.get(agent, {})}
        if own[agent]["list_length"] != k:
            raise ConfigError(
                f"{agent}.list_length={own[agent]['list_length']} and lists of {k} (give --k alone)"
            )
    return settings | own


def parse_limits(
    texts: Sequence[str] | None, alpha_prime: float | None
) -> "tuple[Limit, list[Limit]]":
    """The limit on the popular group, and the others."""
    from fairhorizon.limits.language import POPULAR, GroupOf, Limit, LimitError

    try:
        limits = [Limit.parse(text) for text in texts or []]
    except LimitError as error:
        raise typer.BadParameter(str(error), param_hint="--limit") from None
    main = [
        limit
        for limit in limits
        if limit.group == GroupOf(POPULAR) and limit.is_plain and not limit.is_floor
    ]
    if len(main) > 1 or (main and alpha_prime is not None):
        other = main[1] if len(main) > 1 else f"--alpha-prime {alpha_prime:g}"
        raise typer.BadParameter(f"{main[0]} and {other} (give one)", param_hint="--limit")
    if len({limit.lag for limit in limits} - {0}) > 1:
        raise typer.BadParameter(
            "labels lag by several numbers of steps (give one)", param_hint="--limit"
        )
    default = Limit.popular(DEFAULT_SHARE if alpha_prime is None else alpha_prime)
    return (main or [default])[0], [limit for limit in limits if limit not in main]
