"""A ranker behind FCPO's joint allocation and step control: by hand, and against FCPO itself."""

import copy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load, save
from torch import Tensor

from fairhorizon.allocation.candidates import Candidates
from fairhorizon.allocation.engine import allocate
from fairhorizon.allocation.limit_matrix import GroupRule, LimitMatrix
from fairhorizon.data.splits import Split
from fairhorizon.errors import ConfigError
from fairhorizon.evaluation.long_term import LongRun, LongRunSettings
from fairhorizon.fcpo.config import FcpoConfig
from fairhorizon.fcpo.model import Fcpo
from fairhorizon.fcpo.networks import NO_PRICE
from fairhorizon.limits.counts import Exposure
from fairhorizon.limits.place_rule import PlaceRule
from fairhorizon.limits.step_limits import GiniLimit, PopularityLimit, StepLimit
from fairhorizon.methods import Method, build, load_method
from fairhorizon.metrics.fairness import gini
from fairhorizon.metrics.shares import exceeds
from fairhorizon.rankers.ease import Ease
from fairhorizon.rankers.popularity import Popularity
from fairhorizon.rankers.ranker import Ranker
from fairhorizon.recommenders.online import OnlineRecommender
from fairhorizon.recommenders.ranked.calibration import LEAST, UNKNOWN, sharpness
from fairhorizon.recommenders.ranked.model import Ranked
from fairhorizon.rerank.control import StepControl
from fairhorizon.rerank.lists import ListAllocation
from fairhorizon.rerank.quota import Quota
from fairhorizon.settings import SettingsError
from fairhorizon.simulation.feedback import Scenario, evaluation_scenario, validation_scenario
from fairhorizon.vocabulary import Protocol

LENGTH = 10
LEVELS = (0.1, 0.25, 0.37, 0.5)
Lists = NDArray[np.int64]


@pytest.fixture(scope="module")
def model(market: Split) -> Ranked:
    return Ranked(Ease()).fit(market)


@pytest.fixture(scope="module")
def scenario(market: Split, model: Ranked) -> Scenario:
    return evaluation_scenario(market, model.queue_length, Protocol.STANDARD)


def share_of(lists: Lists, model: Ranked) -> float:
    return float(model.sensitive_.numpy()[lists[lists >= 0]].mean())


def gini_of(lists: Lists) -> float:
    return gini(np.bincount(lists[lists >= 0], minlength=80))


@pytest.mark.parametrize("feedback", [False, True])
@pytest.mark.parametrize("reranker", [ListAllocation(), StepControl()], ids=lambda r: r.method)
def test_the_share_is_kept_exactly_at_every_level(
    model: Ranked, scenario: Scenario, reranker: ListAllocation | StepControl, feedback: bool
):
    plain = model.recommend(scenario, length=LENGTH, feedback=feedback)
    assert share_of(plain, model) > max(LEVELS)
    for level in LEVELS:
        served = model.reranked(reranker.at_level(level))
        lists = served.recommend(scenario, length=LENGTH, feedback=feedback)
        assert (lists >= 0).all()
        most = int(level * lists.size + 1e-9)
        assert model.sensitive_.numpy()[lists].sum() == most
        assert served.alpha_prime == level
        # the limit is on all showings: some users have more of the group than others
        assert np.ptp(model.sensitive_.numpy()[lists].sum(1)) > 0


def by_hand(model: Ranked, market: Split, scenario: Scenario, sharp: float) -> Candidates:
    """Values of all items that are the best 40 of their group, in float64."""
    state, _ = scenario.begin(torch.arange(scenario.n_users))
    scores = model.ranker.scores(state.users, state.queue).double().numpy()
    z = (scores - scores.mean(1, keepdims=True)) / scores.std(1, keepdims=True)
    blocked, group = state.blocked.numpy(), model.sensitive_.numpy()
    values = np.zeros_like(z)
    items = np.full(z.shape, -1)
    for user in range(len(z)):
        on_menu = []
        for side in (group, ~group):
            free = np.flatnonzero(side & ~blocked[user])
            on_menu += sorted(free, key=lambda item, user=user: -z[user, item])[:40]
        probabilities = np.exp(sharp * z[user, on_menu])
        probabilities /= probabilities.sum()
        likes = max(1.0, market.train.user_counts()[user] / 4)
        gains = 1 / np.log2(np.arange(2, LENGTH + 2))
        ideal = np.interp(likes, np.arange(LENGTH + 1), np.concatenate([[0], gains.cumsum()]))
        values[user, on_menu] = (1 - (1 - probabilities) ** likes) / ideal
        items[user, on_menu] = on_menu
    return Candidates.checked(items, values)


@pytest.mark.parametrize("share", [0.2, 0.37, 1.0])
def test_without_spread_lists_are_the_allocation_of_values_by_hand(
    model: Ranked, market: Split, scenario: Scenario, share: float
):
    offers = by_hand(model, market, scenario, model.sharpness_)
    group = model.sensitive_.numpy()
    expected = allocate(
        offers, LimitMatrix.from_rules([GroupRule(PlaceRule(share), group)], LENGTH)
    ).lists
    served = model.reranked(ListAllocation(share=share, spread=None))
    np.testing.assert_array_equal(served.recommend(scenario, length=LENGTH), expected)


def test_lists_are_spread_relative_to_the_ranker_at_the_same_level(
    model: Ranked, scenario: Scenario
):
    state, _ = scenario.begin(torch.arange(scenario.n_users))
    scores = model.ranker.scores(state.users, state.queue)
    items = torch.arange(80).expand(scores.shape).masked_fill(state.blocked, -1)
    z = (scores - scores.mean(1, keepdim=True)) / scores.std(1, keepdim=True, correction=0)
    rule = PlaceRule(0.4)
    offers = Candidates.checked(items.numpy(), z.numpy())
    alone = allocate(
        offers, LimitMatrix.from_rules([GroupRule(rule, model.sensitive_.numpy())], LENGTH)
    ).lists
    served = model.reranked(ListAllocation(share=0.4, spread=0.9))
    lists = served.recommend(scenario, length=LENGTH)
    assert gini_of(lists) <= 0.9 * gini_of(alone) + 1e-9
    assert not exceeds(share_of(lists, model), 0.4)
    loose = model.reranked(ListAllocation(share=0.4, spread=None))
    assert gini_of(loose.recommend(scenario, length=LENGTH)) > gini_of(lists)


def test_the_sharpness_makes_the_validation_items_most_likely(model: Ranked, market: Split):
    scenario = validation_scenario(market, model.queue_length, Protocol.STANDARD)

    def likelihood(weight: float) -> float:
        """Less the ridge, of items among the candidates of the calibration."""
        state, answers = scenario.begin(torch.arange(scenario.n_users))
        scores = model.ranker.scores(state.users, state.queue).double()
        z = (scores - scores.mean(1, keepdim=True)) / scores.std(1, keepdim=True, correction=0)
        total, users = 0.0, 0
        for user in range(scenario.n_users):
            on_menu = []
            for side in (model.sensitive_, ~model.sensitive_):
                free = (side & ~state.blocked[user]).nonzero().squeeze(1)
                on_menu.append(free[z[user, free].argsort(descending=True)[:40]])
            menu = torch.cat(on_menu)
            liked = answers.positive[user, menu]
            if liked.any():
                total += float(torch.log_softmax(weight * z[user, menu], 0)[liked].mean())
                users += 1
        return total / users - 1e-3 * weight**2

    best = likelihood(model.sharpness_)
    assert LEAST < model.sharpness_ < 10
    for factor in (0.97, 1.03):
        assert likelihood(factor * model.sharpness_) < best


class Backwards(Popularity):
    """The least popular item first."""

    method = "backwards"

    def scores(self, users: Tensor, queue: Tensor) -> Tensor:
        return -super().scores(users, queue)


def test_a_ranker_worse_than_chance_is_not_turned_round(market: Split):
    ranker: Ranker = Backwards().fit(market)
    group = Ranked(Popularity()).fit(market).sensitive_
    assert sharpness(ranker, market, group) == LEAST
    nothing = Split(market.train, market.validation.take(np.zeros(0, dtype=np.int64)), market.test)
    assert sharpness(ranker, nothing, group) == UNKNOWN == 1.0


@pytest.fixture(scope="module")
def fcpo(market: Split, small_strong: FcpoConfig, model: Ranked) -> Fcpo:
    """FCPO over EASE alone, with the weight that is the sharpness of the ranker."""
    changes = {
        **{"warm_start": ("ease",), "rounds": 0, "candidates": 40},
        "spread_cost": 1.0,  # all the way, as `lists` does
    }
    policy = Fcpo(small_strong.model_copy(update=changes), seed=0).fit(market)
    # as of a ranker alone, whose accuracy nobody measures
    policy.policy_.ensemble = replace(policy.policy_.ensemble, ndcg=())
    policy.policy_.actor.fix_weights([model.sharpness_, NO_PRICE])
    return policy


@pytest.mark.parametrize("share", [0.2, 0.4])
@pytest.mark.parametrize("feedback", [False, True])
def test_lists_are_those_of_fcpo_over_the_ranker_alone(
    model: Ranked, fcpo: Fcpo, scenario: Scenario, share: float, feedback: bool
):
    assert fcpo.config.spread == ListAllocation().spread
    expected = fcpo.with_level(share).recommend(scenario, length=LENGTH, feedback=feedback)
    served = model.reranked(ListAllocation(share=share))
    lists = served.recommend(scenario, length=LENGTH, feedback=feedback)
    np.testing.assert_array_equal(lists, expected)


def long_run(
    server: OnlineRecommender,
    market: Split,
    scenario: Scenario,
    limits: Sequence[StepLimit] = (),
    **settings: int,
) -> LongRun:
    exposure = Exposure(market.train.item_counts())
    return LongRun(server, scenario, exposure, LongRunSettings(warm_up=0, **settings), limits)


@pytest.mark.parametrize("list_length", [1, 3])
def test_in_a_long_run_the_limit_holds_that_the_plain_ranker_breaks(
    model: Ranked, market: Split, scenario: Scenario, list_length: int
):
    rates = {}
    for reranker in (None, StepControl()):
        served = model.reranked(reranker)
        server = served.online([PopularityLimit(0.3)], list_length=list_length)
        run = long_run(server, market, scenario, list_length=list_length)
        rows = [run.step() for _ in range(8)]
        rates[served.method] = [row["popularity_rate"] for row in rows]
        assert rows[-1]["ndcg"] > 0
    assert max(rates["ease"]) > 0.5
    assert not any(exceeds(rate, 0.3) for rate in rates["ease+control"])
    assert max(rates["ease+control"]) == pytest.approx(0.3, abs=0.02)


def test_a_limit_on_the_gini_index_is_kept_as_well(
    model: Ranked, market: Split, scenario: Scenario
):
    limit = GiniLimit(0.5)
    ginis = []
    for limits in ([], [limit]):
        server = model.reranked(StepControl()).online(limits)
        run = long_run(server, market, scenario, limits=[limit])
        for _ in range(12):
            row = run.step()
            assert row["excess of gini"] == pytest.approx(row["gini"] - 0.5)
        ginis.append(row["gini"])
    assert ginis[1] < ginis[0]
    assert run.recommender.notes().keys() == {"price of gini"}


def test_every_step_is_that_of_fcpo_over_the_ranker_alone(
    model: Ranked, fcpo: Fcpo, market: Split, scenario: Scenario
):
    limits = [PopularityLimit(0.3)]
    runs = [
        long_run(server, market, scenario)
        for server in (
            fcpo.online(limits, learn=False),
            model.reranked(StepControl()).online(limits),
        )
    ]
    for _ in range(12):
        rows = [run.step() for run in runs]
        assert rows[0]["ndcg"] == rows[1]["ndcg"]
        assert torch.equal(runs[0].state.blocked, runs[1].state.blocked)  # what was shown


@pytest.mark.parametrize("reranker", [StepControl(), Quota()], ids=lambda r: r.method)
def test_a_stack_that_was_fitted_again_goes_on_after_a_restart(
    market: Split, reranker: StepControl | Quota
):
    """Its settings are chosen at every fit, so they are stored with it."""
    stack = build(Method.parse("stack"), {"rankers": ["ease:recent", "popularity"]}, 0).fit(market)
    assert isinstance(stack, Ranked)
    served = stack.reranked(reranker)
    users = evaluation_scenario(market, served.queue_length, Protocol.STANDARD)

    def begun() -> LongRun:
        server = served.online([PopularityLimit(0.4)], retrain_on=market, round_length=4)
        return long_run(server, market, users, update_every=2)

    first = begun()
    for _ in range(6):
        first.step()
    assert first.recommender.ranker is not stack.ranker
    # as if the fit had chosen others than that of the model
    member = first.recommender.ranker.ensemble_.rankers[0]
    member.config = member.config.model_copy(update={"half_life": 1.5})
    second = begun()
    second.restore(load(save(first.tensors())))
    assert second.recommender.ranker.ensemble_.rankers[0].config.half_life == 1.5
    for _ in range(5):
        assert first.step()["ndcg"] == second.step()["ndcg"]
        assert torch.equal(first.state.blocked, second.state.blocked)


@pytest.mark.parametrize("reranker", [ListAllocation(share=0.3, spread=None), StepControl()])
def test_stored_and_loaded_it_recommends_the_same(
    model: Ranked, scenario: Scenario, reranker: ListAllocation | StepControl, tmp_path: Path
):
    served = model.reranked(reranker)
    served.save(tmp_path / "model")
    loaded = load_method(tmp_path / "model")
    assert isinstance(loaded, Ranked)
    assert (loaded.reranker, loaded.sharpness_) == (reranker, model.sharpness_)
    for feedback in (False, True):
        lists, own = (
            one.recommend(scenario, length=LENGTH, feedback=feedback) for one in (loaded, served)
        )
        np.testing.assert_array_equal(lists, own)
    loaded.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "model").read_bytes()


def test_what_it_cannot_do_is_said_with_a_remedy(model: Ranked, scenario: Scenario):
    allocated, controlled = (model.reranked(r) for r in (ListAllocation(), StepControl()))
    with pytest.raises(ConfigError, match=r"serves in no long run \(use ease\+control\)"):
        allocated.online()
    for served in (allocated, controlled):
        with pytest.raises(ConfigError, match=r"serves all users together \(leave out --one-by"):
            served.recommend_one_by_one(scenario, length=LENGTH)
    with pytest.raises(ConfigError, match="list_length 0 must be at least 1"):
        controlled.online(list_length=0)
    with pytest.raises(ConfigError, match="is no share of what is shown"):
        allocated.with_level(1.2)
    for name in ("ease+lists@1.5", "ease+control@-1"):
        with pytest.raises(SettingsError, match="share"):
            build(Method.parse(name), {}, 0)
    with pytest.raises(SettingsError, match="spread"):
        build(Method.parse("ease+lists"), {"lists": {"spread": 0}}, 0)


def test_a_level_keeps_the_other_settings():
    given = {"lists": {"spread": 0.5, "candidates": 7}}
    served = build(Method.parse("ease+lists@0.2"), given, 0)
    assert isinstance(served, Ranked)
    assert served.reranker == ListAllocation(share=0.2, spread=0.5, candidates=7)
    expected = {"share": 0.2, "spread": 0.5, "candidates": 7, "rule": None}
    assert served.all_settings()["lists"] == expected
    assert copy.copy(served).capabilities.limits is False
    assert build(Method.parse("ease+control"), {}, 0).capabilities.limits
