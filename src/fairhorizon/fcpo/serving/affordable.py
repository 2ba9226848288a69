"""How even lists may be made: as much as accuracy on what users took later can afford."""

from dataclasses import replace

import torch

from fairhorizon.limits.place_rule import PlaceRule
from fairhorizon.recommenders.lists.item_lists import NO_LIMIT, Evenness, ItemLists
from fairhorizon.recommenders.lists.opening import Opening
from fairhorizon.recommenders.steps import listed_ndcg
from fairhorizon.simulation.feedback import Scenario

PARTS = (1.0, 0.75, 0.5, 0.25)  # of the way to the Gini index of the most even accurate ranker


@torch.no_grad()
def affordable_part(
    lists: ItemLists,
    evenness: Evenness,
    opening: Opening,
    scenario: Scenario,
    *,
    length: int,
    limit: float,
    cost: float,
) -> float:
    """The largest part of the way that costs at most a share `cost` of NDCG; 0 if none does.

    Without a limit on the group, and with one.
    """

    def ndcg(rule: PlaceRule, spread: Evenness | None) -> float:
        some = replace(lists, rule=rule, spread=spread)
        queues = scenario.queue[opening.users]
        shown = some.from_menus(opening.menus, opening.users, queues, length)
        return listed_ndcg(shown, opening.users, scenario)

    rules = (NO_LIMIT, PlaceRule(limit))
    least = {rule: (1 - cost) * ndcg(rule, None) for rule in rules}
    for part in PARTS:
        spread = replace(evenness, part=part)
        if all(ndcg(rule, spread) >= lowest for rule, lowest in least.items()):
            return part
    return 0.0
