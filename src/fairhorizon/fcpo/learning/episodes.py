"""How FCPO's training generates trajectories and is validated, for each kind of policy."""

from dataclasses import dataclass
from typing import Protocol as Interface

import torch
from torch import Tensor

from fairhorizon.fcpo.config import FcpoConfig, attention_of
from fairhorizon.fcpo.learning.item_rollout import rollout_items
from fairhorizon.fcpo.learning.rollout import rollout
from fairhorizon.fcpo.learning.trajectories import Trajectories
from fairhorizon.fcpo.serving.actor_chances import ActorChances
from fairhorizon.fcpo.warm_start import where_unseen_begins
from fairhorizon.histories import UserItems
from fairhorizon.limits.place_rule import PlaceRule
from fairhorizon.policy.actor import Actor
from fairhorizon.recommenders.lists.item_lists import ItemLists
from fairhorizon.recommenders.lists.opening import Opening, liked_items, open_menus, some_users
from fairhorizon.recommenders.validation import listed_ndcg
from fairhorizon.recommenders.walk import served_ndcg
from fairhorizon.simulation.feedback import Scenario, cuts_at, training_scenario

MOST_USERS = 8192  # with stored menus


class Episodes(Interface):
    """Lines 6-13 of Algorithm 1, and the validation."""

    def generate(self, generator: torch.Generator) -> Trajectories:
        """Episodes of some users, under the present actor."""

    def validate(self) -> float:
        """NDCG of the lists of the present actor, on the validation items."""


def scenario_of(
    items: UserItems, config: FcpoConfig, queue_length: int, generator: torch.Generator
) -> Scenario:
    """The states in which the episodes of a round begin."""
    if config.starts == "unseen":
        cuts = where_unseen_begins(items)
    elif config.starts == "anywhere":
        parts = torch.rand(items.n_users, generator=generator)
        cuts = cuts_at(items, config.history, parts)
    else:
        cuts = torch.full((items.n_users,), config.history)
    return training_scenario(items, queue_length, config.protocol, cuts)


@dataclass
class _Learning:
    """The actor, its settings and its data."""

    actor: Actor
    config: FcpoConfig
    items: UserItems  # training items
    validation: Scenario
    sensitive: Tensor
    seed: int

    def __post_init__(self) -> None:
        """Nothing more to prepare."""


class ProposalEpisodes(_Learning):
    """Episodes of a policy that samples W."""

    def generate(self, generator: torch.Generator) -> Trajectories:
        config, items = self.config, self.items
        users = torch.arange(items.n_users)
        parts = []
        for _ in range(config.episodes_per_user):
            if len(users) > config.users_per_round:
                drawn = torch.randperm(items.n_users, generator=generator)
                users = drawn[: config.users_per_round]
            length = self.validation.queue.shape[1]
            scenario = scenario_of(items, config, length, generator)
            parts.append(
                rollout(
                    self.actor,
                    scenario,
                    users,
                    self.sensitive,
                    steps=config.horizon,
                    generator=generator,
                )
            )
        return Trajectories.join(parts)

    def validate(self) -> float:
        return served_ndcg(
            self.actor,
            self.validation,
            self.sensitive,
            length=self.config.validation_length,
            generator=torch.Generator().manual_seed(self.seed),
        )


class MenuEpisodes(_Learning):
    """Episodes of a policy over items. Rankers are fixed, so first menus are scored once."""

    def __post_init__(self) -> None:
        generator = torch.Generator().manual_seed(self.seed)
        length = self.validation.queue.shape[1]
        self.scenario = scenario_of(self.items, self.config, length, generator)
        self.opening = self._open(self.scenario, generator)
        self.at_validation = self._open(self.validation, generator)
        counts, rule = self.items.indptr.diff(), PlaceRule(self.config.limit_in_training)
        self.lists = ItemLists(ActorChances(self.actor), self.sensitive, counts, rule, None)

    def generate(self, generator: torch.Generator) -> Trajectories:
        config = self.config
        parts = []
        for _ in range(config.episodes_per_user):
            drawn = torch.randperm(len(self.opening.users), generator=generator)
            parts.append(
                rollout_items(
                    self.actor,
                    self.scenario,
                    self.opening.of(drawn[: config.users_per_round]),
                    self.sensitive,
                    steps=config.horizon,
                    temperature=config.temperature,
                    attention=attention_of(config).to(self.sensitive.device),
                    generator=generator,
                )
            )
        return Trajectories.join(parts)

    def validate(self) -> float:
        users, menus = self.at_validation.users, self.at_validation.menus
        length = min(self.config.validation_length, len(self.sensitive))
        with torch.no_grad():
            lists = self.lists.from_menus(menus, users, self.validation.queue[users], length)
        return listed_ndcg(lists, users, self.validation)

    def liked(self) -> Tensor:
        """(users, C) bool: the items of the first menus that are liked in the episodes."""
        return liked_items(self.opening, self.scenario)

    def _open(self, scenario: Scenario, generator: torch.Generator) -> Opening:
        """The menus of at most MOST_USERS users who like anything."""
        users = some_users(scenario, MOST_USERS, generator)
        return open_menus(self.actor.items, scenario, users, self.sensitive)
