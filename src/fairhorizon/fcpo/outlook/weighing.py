"""Users who are served by what a like of theirs is worth: `value=long` outside of a long run."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from fairhorizon.errors import ConfigError
from fairhorizon.fcpo.outlook.learned import LearnedOutlook, best_open
from fairhorizon.ranking import rows_at_once
from fairhorizon.recommenders.base import Recommender
from fairhorizon.simulation.feedback import Scenario

VALUES_AT_ONCE = 2**22


def check_weighs(model: Recommender) -> None:
    """Refuse a model whose lists no worth of a user can change."""
    if not model.abilities.worth:
        limits = ", ".join(map(str, model.limits_))
        raise ConfigError(
            f"{model.method}{f' under {limits}' if limits else ''} does not make its lists of "
            "values, so that a user's worth changes nothing (use fcpo, or a ranker with +lists)"
        )


def with_worth(
    model: Recommender, scenario: Scenario, outlook: LearnedOutlook, users: Sequence[object]
) -> Scenario:
    """The scenario with the worth of its users, by their standing at the end of the record.

    users: (n_users,) their ids.
    """
    check_weighs(model)
    return replace(scenario, worth=worth_of(model, scenario, outlook, users))


@torch.no_grad()
def worth_of(
    model: Recommender, scenario: Scenario, outlook: LearnedOutlook, users: Sequence[object]
) -> Tensor:
    """(n_users,) float32, some users at a time."""
    sensitive, found = model.sensitive_.cpu(), [torch.zeros(0)]
    for rows in torch.arange(scenario.n_users).split(rows_at_once(len(sensitive), VALUES_AT_ONCE)):
        some = scenario.only(rows)
        made = model.item_values(some, length=1)
        standing = outlook.standing_of([users[row] for row in rows.tolist()], _taken(some))
        found.append(outlook.worth(standing, best_open(made.items, made.chances, sensitive)))
    return torch.cat(found)


def _taken(scenario: Scenario) -> Tensor:
    """(n_users,) how many items each has taken."""
    if scenario.taken is not None:
        return scenario.taken
    if scenario.excluded is not None:
        return scenario.excluded.indptr.diff()
    return (scenario.queue < scenario.positive.n_items).sum(1)
