"""The options of fairhorizon longterm, and what their values mean."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from fairhorizon.cli.declaring import declared
from fairhorizon.errors import ConfigError
from fairhorizon.vocabulary import Retrain, Users

if TYPE_CHECKING:
    from fairhorizon.environment.simulated import SimulationConfig
    from fairhorizon.exposure.limits import Limit
    from fairhorizon.settings import Settings

LIMITS = "More limits, which FCPO and NAME+control keep together with the first one"
DEFAULT_SHARE, DEFAULT_LAG, DEFAULT_PATIENCE = 0.4, 50, 4.0
S = TypeVar("S", bound="Settings")
SIMULATED = "Users with --users simulated or leaving"
LEAVING = "Users with --users leaving"

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
UsersOption = Annotated[
    Users,
    typer.Option(
        help="logged: users like their test items. simulated: users may click any item. leaving: "
        "the same, and they leave when their patience is at an end."
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
Floors = Annotated[
    list[str] | None,
    typer.Option("--floor", hidden=True, help="Of earlier versions, now --limit."),
]
GiniLimit = Annotated[
    float | None,
    typer.Option("--gini-limit", hidden=True, help="Of earlier versions, now --limit."),
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


Patience = Annotated[
    float | None,
    typer.Option(
        min=2,
        help="How many likes users can be patient for, in the mean; what a like adds is such that "
        "half of them stay for 60 steps.",
        show_default="4",
        rich_help_panel=LEAVING,
    ),
]
LikeAdds = Annotated[
    float | None,
    typer.Option(
        help="How many other showings a like makes up for.",
        show_default="calibrated",
        rich_help_panel=LEAVING,
    ),
]
Returning = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=1,
        help="Chance of coming back in a step, of those who left content; falls with what they did "
        "not like.",
        show_default="0",
        rich_help_panel=LEAVING,
    ),
]
Satiation = Annotated[
    float | None,
    typer.Option(
        min=0,
        help="What a showing takes off the log-odds of items of the same kind.",
        show_default="0",
        rich_help_panel=LEAVING,
    ),
]
By = Annotated[
    str | None,
    typer.Option(
        "--by",
        metavar="COLUMN",
        help="Column with the kinds of items, for --satiation and --quit.",
        show_default="genre",
        rich_help_panel=LEAVING,
    ),
]
Quit = Annotated[
    str | None,
    typer.Option(
        "--quit",
        metavar="M/N",
        help="Users quit when more than M of the last N items are of one kind.",
        rich_help_panel=LEAVING,
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


def chosen_users(
    users: UsersOption = Users.LOGGED,
    drift: Drift = None,
    position_bias: PositionBias = None,
    patience: Patience = None,
    like_adds: LikeAdds = None,
    returning: Returning = None,
    satiation: Satiation = None,
    by: By = None,
    quit_rule: Quit = None,
) -> "SimulationConfig | None":
    """The users that the options describe."""
    moods: dict[str, Any] = {"patience": patience, "like_adds": like_adds, "returning": returning}
    moods |= {"satiation": satiation, "by": by, "quits": quit_rule}
    return parse_users(users, {"drift": drift, "position_bias": position_bias}, moods)


def takes_users(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of `chosen_users`; it is called with `simulation`."""
    options = inspect.signature(chosen_users).parameters

    def called(**given: Any) -> Any:
        simulation = chosen_users(**{name: given.pop(name) for name in options})
        return command(**given, simulation=simulation)

    return declared(command, called, list(options.values()), made=["simulation"])


def parse_users(
    users: Users, simulated: Mapping[str, float | None], leaving: Mapping[str, Any]
) -> "SimulationConfig | None":
    """The settings of simulated users; None for users of a log.

    simulated, leaving: options as they were typed, None if they were not.
    """
    from fairhorizon.environment.moods import MoodConfig
    from fairhorizon.environment.simulated import SimulationConfig

    given, moods = (
        {name: value for name, value in options.items() if value is not None}
        for options in (simulated, leaving)
    )
    if given and users is Users.LOGGED:
        raise ConfigError(
            f"--{_dashed(given)}: only for simulated users (give --users simulated too)"
        )
    if moods and users is not Users.LEAVING:
        raise ConfigError(
            f"--{_dashed(moods)}: only for users who can leave (give --users leaving too)"
        )
    if users is Users.LOGGED:
        return None
    if users is Users.LEAVING:
        if "quits" in moods:
            moods["quits"] = parse_quit(str(moods["quits"]))
        bored_only = "quits" in moods and "patience" not in moods
        moods.setdefault("patience", None if bored_only else DEFAULT_PATIENCE)
        given["moods"] = _validated(MoodConfig, moods)
    return _validated(SimulationConfig, given)


def _dashed(given: Mapping[str, object]) -> str:
    """The option that the first of the settings is given by."""
    return {"quits": "quit"}.get(first := next(iter(given)), first.replace("_", "-"))


def _validated(kind: type[S], given: Mapping[str, Any]) -> S:
    from pydantic import ValidationError

    from fairhorizon.settings import expected

    try:
        return kind.model_validate(given)
    except ValidationError as error:
        fault = error.errors()[0]
        option = str(fault["loc"][0]).replace("_", "-")
        raise typer.BadParameter(
            f"{fault['input']}: give {expected(fault)}", param_hint=f"--{option}"
        ) from None


def parse_quit(text: str) -> dict[str, int]:
    """The quit rule, as in 4/10."""
    most, _, of = text.partition("/")
    if not (most.isdecimal() and of.isdecimal() and 1 <= int(most) < int(of)):
        raise typer.BadParameter(
            f"{text!r} (give two whole numbers, the smaller first, as in 4/10)",
            param_hint="--quit",
        )
    return {"most": int(most), "of": int(of)}


def refuse_old_forms(floors: Sequence[str] | None, gini: float | None) -> None:
    """Floors and the limit on the Gini index had options of their own."""
    if gini is not None:
        raise typer.BadParameter(f'is now --limit "gini<={gini:g}"', param_hint="--gini-limit")
    if floors:
        group, _, share = floors[0].rpartition(":")
        form = f"{group}>={share}" if group else "COLUMN=VALUE>=SHARE"
        raise typer.BadParameter(f'is now --limit "{form}"', param_hint="--floor")


def parse_limits(
    texts: Sequence[str] | None, alpha_prime: float | None
) -> "tuple[Limit, list[Limit]]":
    """The limit on the popular group, and the others."""
    from fairhorizon.exposure.limits import POPULAR, GroupOf, Limit, LimitError

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
