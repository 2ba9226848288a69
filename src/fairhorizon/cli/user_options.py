"""Who is served in a long run: the options of fairhorizon longterm about users."""

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from fairhorizon.cli.declaring import declared
from fairhorizon.errors import ConfigError
from fairhorizon.vocabulary import Users

if TYPE_CHECKING:
    from fairhorizon.settings import Settings
    from fairhorizon.simulation.simulated import SimulationConfig

SIMULATED = "Users with --users simulated or leaving"
LEAVING = "Users with --users leaving"
DEFAULT_PATIENCE = 4.0
S = TypeVar("S", bound="Settings")

UsersOption = Annotated[
    Users,
    typer.Option(
        help="logged: users like their test items. simulated: users may click any item. leaving: "
        "the same, and they leave when their patience is at an end."
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
        help="Column with the kinds of items, for --satiation, --quit, and the settings mmr and "
        "kind_quota of NAME+control.",
        show_default="genre",
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
    moods |= {"satiation": satiation, "quits": quit_rule}
    if users is Users.LEAVING:  # others have rules about kinds too
        moods["by"] = by
    return parse_users(users, {"drift": drift, "position_bias": position_bias}, moods)


def takes_users(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of `chosen_users`; it is called with `simulation` and `by`."""
    options = inspect.signature(chosen_users).parameters

    def called(**given: Any) -> Any:
        chosen = {name: given.pop(name) for name in options}
        return command(**given, simulation=chosen_users(**chosen), by=chosen["by"])

    return declared(command, called, list(options.values()), made=["simulation"])


def parse_users(
    users: Users, simulated: Mapping[str, float | None], leaving: Mapping[str, Any]
) -> "SimulationConfig | None":
    """The settings of simulated users; None for users of a log.

    simulated, leaving: options as they were typed, None if they were not.
    """
    from fairhorizon.simulation.moods import MoodConfig
    from fairhorizon.simulation.simulated import SimulationConfig

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
