"""Options on what a like is worth: answers to learn it from, and lists that are made by it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairhorizon.errors import ModelError
from fairhorizon.vocabulary import ListValue

if TYPE_CHECKING:
    from fairhorizon.data.interactions import Interactions
    from fairhorizon.datasets import Dataset
    from fairhorizon.model.blocks import ListsOfRun
    from fairhorizon.model.fitting import GivenAnswers
    from fairhorizon.recommenders.base import Recommender
    from fairhorizon.simulation.feedback import Scenario

Answers = Annotated[
    Path | None,
    typer.Option(
        "--answers",
        metavar="FILE",
        help="File with a row per showing: user, item, time, and liked, 1 or 0, such as "
        "answers.parquet of `fairhorizon export`. From it the model learns what a like is worth, "
        "for `recommend --value long`.",
    ),
]
Away = Annotated[
    float | None,
    typer.Option(
        "--away",
        metavar="DAYS",
        help="Somebody who was shown nothing in the last so many days of --answers has left.",
        show_default="14",
    ),
]
Value = Annotated[
    ListValue,
    typer.Option(
        "--value",
        help="What the lists make as much of as they can. ndcg: what users like now. long: every "
        "user's values count by what a like of theirs is worth for later; for a run that was "
        "fitted with --answers.",
    ),
]


def read(
    file: Path | None, away: float | None, model: "Recommender", log: "Interactions"
) -> "GivenAnswers | None":
    """The answers for a method before its fit, if there are any."""
    from fairhorizon.model.fitting import AWAY, GivenAnswers

    if file is None:
        if away is not None:
            raise typer.BadParameter("it is about --answers (give both)", param_hint="--away")
        return None
    return GivenAnswers.read(file, AWAY if away is None else away, model, log)


def valued(
    lists: "ListsOfRun", model: "Recommender", dataset: "Dataset", value: ListValue
) -> "tuple[ListsOfRun, Scenario]":
    """The lists that are asked for, by this value, and the states of their users."""
    scenario = lists.scenario(model, dataset)
    if value is ListValue.NDCG:
        return lists, scenario
    from dataclasses import replace

    from fairhorizon.fcpo.retention.replay import with_user_weights
    from fairhorizon.model.folder import ModelFolder

    folder = ModelFolder(lists.run)
    outlook = folder.outlook()
    if outlook is None:
        raise ModelError(
            f"{folder.folder}: has learned from no answers what a like is worth (fit it with "
            "--answers FILE, or leave out --value long)"
        )
    ids = dataset.log.user_ids if lists.users is None else dataset.log.user_ids[lists.users]
    weighed = with_user_weights(model, scenario, outlook, ids.tolist())
    return replace(lists, worth=weighed.worth), weighed
