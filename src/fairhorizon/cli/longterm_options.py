"""The options of fairhorizon longterm, and what their values mean."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairhorizon.errors import ConfigError
from fairhorizon.vocabulary import Retrain, Users

if TYPE_CHECKING:
    from fairhorizon.environment.simulated import SimulationConfig
    from fairhorizon.experiments.group_limits import Limits

LIMITS = "More limits, which FCPO and NAME+control keep together with the first one"
SIMULATED = "Users with --users simulated"

Steps = Annotated[int, typer.Option(min=1, help="Number of lists per user.")]
ListLength = Annotated[int, typer.Option("--k", min=1, help="Length of a list.")]
AlphaPrime = Annotated[
    float,
    typer.Option(
        min=0, max=1, help="Largest share of the limited group: popular items, or --sensitive."
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
    Retrain, typer.Option(help="Rankers that are fitted again after every round.")
]
UsersOption = Annotated[
    Users,
    typer.Option(help="logged: users like their test items. simulated: users may click any item."),
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue interrupted runs.")]
GroupShares = Annotated[
    list[str] | None,
    typer.Option(
        "--limit",
        metavar="COLUMN=VALUE:SHARE",
        help="Largest share of a group in what is shown, as in genre=Drama:0.3. Repeatable.",
        rich_help_panel=LIMITS,
    ),
]
Floors = Annotated[
    list[str] | None,
    typer.Option(
        "--floor",
        metavar="COLUMN=VALUE:SHARE",
        help="Smallest share of a group. The column is in the data or in --item-table. Repeatable.",
        rich_help_panel=LIMITS,
    ),
]
GiniLimit = Annotated[
    float | None,
    typer.Option(
        min=0, max=1, help="Largest Gini index of everything shown.", rich_help_panel=LIMITS
    ),
]
Drift = Annotated[
    float | None,
    typer.Option(
        help="How fast preferences change: 0 never, 1 new preferences at every step.",
        show_default="0",
        rich_help_panel=SIMULATED,
    ),
]
PositionBias = Annotated[
    float | None,
    typer.Option(
        help="The k-th item of a list is examined with probability k to the power of minus this.",
        show_default="1",
        rich_help_panel=SIMULATED,
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


def parse_users(
    users: Users, drift: float | None, position_bias: float | None
) -> "SimulationConfig | None":
    """The settings of simulated users; None for users of a log."""
    from pydantic import ValidationError

    from fairhorizon.environment.simulated import SimulationConfig
    from fairhorizon.settings import expected

    given = {"drift": drift, "position_bias": position_bias}
    given = {name: value for name, value in given.items() if value is not None}
    if given and users is not Users.SIMULATED:
        option = next(iter(given)).replace("_", "-")
        raise ConfigError(f"--{option}: only for simulated users (give --users simulated too)")
    if users is not Users.SIMULATED:
        return None
    try:
        return SimulationConfig.model_validate(given)
    except ValidationError as error:
        fault = error.errors()[0]
        option = str(fault["loc"][0]).replace("_", "-")
        raise typer.BadParameter(
            f"{fault['input']}: give {expected(fault)}", param_hint=f"--{option}"
        ) from None


def parse_limits(
    limits: Sequence[str] | None,
    floors: Sequence[str] | None,
    gini: float | None,
    table: str | None,
) -> "Limits":
    """The limits in addition to the first."""
    from fairhorizon.experiments.group_limits import GroupShare, Limits

    groups = []
    for option, texts in (("--limit", limits), ("--floor", floors)):
        for text in texts or []:
            try:
                groups.append(GroupShare.parse(text, is_floor=option == "--floor"))
            except ConfigError as error:
                raise typer.BadParameter(str(error), param_hint=option) from None
    return Limits(tuple(groups), gini, table)
