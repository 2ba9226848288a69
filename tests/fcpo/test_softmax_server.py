"""The softmax policy in the long run: no noise but exploration, whose probabilities are recorded,
and no answer read but those to what was shown."""

from dataclasses import replace

import pytest
import torch
from scipy.stats import chisquare
from torch import Tensor

from fairhorizon.data.splits import Split
from fairhorizon.errors import ModelError
from fairhorizon.fcpo.config import PRESETS, FcpoConfig
from fairhorizon.fcpo.model import Fcpo
from fairhorizon.fcpo.online import MOST_STEPS, OnlineFcpo, item_trajectories
from fairhorizon.fcpo.policies import rows_of
from fairhorizon.fcpo.rollouts import Choices
from fairhorizon.histories import TableSets
from fairhorizon.limits.counts import Exposure
from fairhorizon.limits.step_limits import GroupFloor, PopularityLimit
from fairhorizon.settings import SettingsError, changed
from fairhorizon.simulation.dynamics import Feedback, State, advance
from fairhorizon.simulation.feedback import evaluation_scenario
from fairhorizon.vocabulary import Protocol

LIMIT = 0.3


@pytest.fixture(scope="module")
def pairs(market: Split, small_strong: FcpoConfig) -> Fcpo:
    """Lists of two."""
    return Fcpo(changed(small_strong, {"list_length": 2, "rounds": 1}), seed=2).fit(market)


def exploring(model: Fcpo, temperature: float) -> Fcpo:
    other = Fcpo(changed(model.config, {"explore": temperature}), seed=model.seed)
    other._take(model.policy_)
    return other


class Answers(Feedback):
    """Of users who like the items of a table; remembers what it was asked about."""

    def __init__(self, liked: Tensor) -> None:
        self.liked, self.shown = liked, torch.zeros_like(liked)

    def answer(self, lists: Tensor) -> Tensor:
        self.shown.scatter_(1, lists.clamp(min=0), True)
        return self.liked.gather(1, lists.clamp(min=0)) & (lists >= 0)


def begin(model: Fcpo, market: Split) -> tuple[State, Tensor, Exposure]:
    scenario = evaluation_scenario(market, model.queue_length, Protocol.STANDARD)
    users = torch.arange(scenario.n_users)
    state, _ = scenario.begin(users)
    return state, scenario.positive.mask(users), Exposure(market.train.item_counts())


def course(
    server: OnlineFcpo, start: tuple[State, Tensor, Exposure], steps: int
) -> tuple[list[Tensor], Tensor, Tensor]:
    """The lists, the parameters at the end, and what was shown; an update after every 4 steps."""
    state, liked, exposure = start
    answers, lists = Answers(liked), []
    for step in range(1, steps + 1):
        lists.append(server.serve(state, exposure))
        outcome = advance(state, lists[-1], answers, exposure.sensitive)
        exposure.add(lists[-1])
        server.observe(lists[-1], outcome, exposure)
        exposure.relabel()
        if step % 4 == 0:
            server.update()
        state = outcome.state
    parameters = torch.nn.utils.parameters_to_vector(server.actor.parameters()).detach()
    return lists, parameters, answers.shown


def test_presets_have_one_policy_each(strong_model: Fcpo, market: Split, small: FcpoConfig):
    assert PRESETS["strong"].policy == "softmax"
    assert not strong_model.policy_.actor.is_gaussian
    server = strong_model.online([PopularityLimit(LIMIT)])
    assert not server.actor.is_gaussian
    assert PRESETS["paper"].policy == "gaussian"
    paper = Fcpo(small.model_copy(update={"rounds": 0})).fit(market)
    assert paper.policy_.actor.is_gaussian


def test_without_exploration_nothing_is_random(strong_model: Fcpo, market: Split):
    """The lists of the first steps are the best items by the logits, whatever the seed."""
    shown = []
    for seed in (1, 2):
        server = strong_model.online([PopularityLimit(1.0)], seed=seed)
        state, liked, exposure = begin(strong_model, market)
        with torch.no_grad():
            queues = server.actor.items.encoder_input(state.queue)
            weights = rows_of(server.actor(state.users, queues), 1)[:, 0]
            features = server.actor.items.features(state.users, state.queue, exposure.sensitive)
            best = features.scores(weights).masked_fill(state.blocked, -torch.inf).argmax(1)
        random_state = server.generator.get_state()
        lists, _, _ = course(server, (state, liked, exposure), 3)
        assert torch.equal(lists[0][:, 0], best)
        assert torch.equal(server.generator.get_state(), random_state)
        assert torch.equal(server.propensities, torch.ones(60, 1))
        assert "mean propensity" not in server.notes()
        shown.append(torch.cat(lists, dim=1))
    assert torch.equal(*shown)


def test_a_temperature_has_no_part_in_serving(strong_model: Fcpo, market: Split):
    for model in (strong_model, exploring(strong_model, 0.4)):
        hot = Fcpo(changed(model.config, {"temperature": 3.0}), seed=model.seed)
        hot._take(strong_model.policy_)
        lists = [
            course(one.online([PopularityLimit(LIMIT)], learn=False), begin(one, market), 3)[0]
            for one in (model, hot)
        ]
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(*lists, strict=True))


@pytest.mark.slow
def test_items_are_shown_as_often_as_their_propensities_say(strong_model: Fcpo, market: Split):
    draws = 1500
    model = exploring(strong_model, 0.7)
    server = model.online([PopularityLimit(1.0)], learn=False)
    state, _, exposure = begin(model, market)
    counts, expected = torch.zeros(60, 80), torch.zeros(60, 80)
    for _ in range(draws):
        lists = server.serve(state, exposure)
        counts.scatter_add_(1, lists, torch.ones(60, 1))
        expected.scatter_(1, lists, server.propensities)  # the same at every draw
    assert not counts[state.blocked].any()
    probabilities = [
        chisquare(
            [*ours[often], draws - ours[often].sum()],
            [*draws * theirs[often], draws - draws * theirs[often].sum()],
            sum_check=False,
        ).pvalue
        for ours, theirs in zip(counts.double(), expected.double(), strict=True)
        for often in [draws * theirs > 5]
    ]
    assert min(probabilities) > 1e-4  # of 60 users
    assert 0.05 < sum(chance < 0.3 for chance in probabilities) / 60 < 0.6  # neither all nor none
    errors = (expected * (1 - expected) / draws).sqrt()
    far = (counts / draws - expected).abs() > 4.5 * errors
    assert not far[draws * expected > 20].any()
    assert expected.max() < 0.9
    assert server.notes()["mean propensity"] == pytest.approx(float(server.propensities.mean()))


@pytest.mark.parametrize("temperature", [0.3, 1.0])
def test_propensities_of_pairs_are_those_of_plackett_and_luce(
    pairs: Fcpo, market: Split, temperature: float
):
    """By hand, given the prices of a limit and a floor that bind."""
    model = exploring(pairs, temperature)
    floor = GroupFloor("fours", torch.arange(80) % 4 == 0, 0.4)
    server = model.online([PopularityLimit(LIMIT), floor], learn=False)
    state, _, exposure = begin(model, market)
    lists = server.serve(state, exposure)
    charges = server.control.charges
    assert charges.abs().max() > 0
    for user in range(60):
        with torch.no_grad():
            some, queue = state.users[[user]], state.queue[[user]]
            rows = rows_of(server.actor(some, server.actor.items.encoder_input(queue)), 2)
            features = server.actor.items.features(some, queue, exposure.sensitive)
            logits = [features.scores(row)[0].double() for row in rows.unbind(1)]
        left = (~state.blocked[user]).nonzero().flatten().tolist()
        for k in range(2):
            weight = {i: torch.exp((logits[k][i] - charges[k, i]) / temperature) for i in left}
            item = int(lists[user, k])
            by_hand = float(weight[item] / sum(weight.values()))
            assert float(server.propensities[user, k]) == pytest.approx(by_hand, rel=1e-4)
            left.remove(item)


def test_limits_hold_while_it_explores(strong_model: Fcpo, market: Split):
    server = exploring(strong_model, 0.5).online([PopularityLimit(LIMIT)])
    start = begin(strong_model, market)
    course(server, start, 8)
    exposure = start[2]
    assert LIMIT * exposure.n_shown - 30 < exposure.n_sensitive <= LIMIT * exposure.n_shown
    assert float(server.propensities.max()) < 1


@pytest.mark.parametrize("temperature", [0.0, 0.5])
def test_answers_to_what_was_not_shown_are_never_read(
    strong_model: Fcpo, market: Split, temperature: float
):
    """Turned into their opposite they change neither lists nor parameters."""
    model = exploring(strong_model, temperature)

    def served(liked: Tensor) -> tuple[list[Tensor], Tensor, Tensor]:
        server = model.online([PopularityLimit(LIMIT)], seed=5)
        return course(server, replace_liked(begin(model, market), liked), 8)

    truth = begin(model, market)[1]
    lists, parameters, shown = served(truth)
    poisoned = torch.where(shown, truth, ~truth)
    assert (poisoned != truth).float().mean() > 0.5
    again, same, _ = served(poisoned)
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(lists, again, strict=True))
    assert torch.equal(parameters, same)
    before = torch.nn.utils.parameters_to_vector(model.policy_.actor.parameters()).detach()
    assert not torch.equal(parameters, before)
    # but what was shown is
    _, other, _ = served(torch.where(shown, ~truth, truth))
    assert not torch.equal(parameters, other)


def replace_liked(
    start: tuple[State, Tensor, Exposure], liked: Tensor
) -> tuple[State, Tensor, Exposure]:
    return start[0], liked, start[2]


def test_what_says_nothing_of_a_list_is_not_a_reward(strong_model: Fcpo, market: Split):
    """A hit in an empty slot, which no user can have given."""
    server = strong_model.online([PopularityLimit(LIMIT)])
    state, liked, exposure = begin(strong_model, market)
    state = replace(
        state, blocked_sets=TableSets(state.blocked.index_fill(0, torch.tensor([7]), True))
    )
    lists = server.serve(state, exposure)
    assert lists[7].tolist() == [-1]
    outcome = advance(state, lists, Answers(liked), exposure.sensitive)
    hits = outcome.hits.clone()
    hits[7] = True
    server.observe(lists, replace(outcome, hits=hits), exposure)
    trajectories = item_trajectories(server.steps)
    assert trajectories.rewards[7].tolist() == [0.0]
    assert torch.equal(trajectories.rewards[:, 0], outcome.reward)


@pytest.mark.parametrize("temperature", [0.0, 0.5])
def test_the_record_of_the_steps_against_the_run_itself(
    pairs: Fcpo, market: Split, temperature: float
):
    model = exploring(pairs, temperature)
    floor = GroupFloor("fours", torch.arange(80) % 4 == 0, 0.4)
    server = model.online([PopularityLimit(LIMIT), floor])
    state, liked, exposure = begin(model, market)
    answers, seen = Answers(liked), []
    for _ in range(5):
        lists = server.serve(state, exposure)
        outcome = advance(state, lists, answers, exposure.sensitive)
        labels = exposure.sensitive.float()
        seen.append((state, lists, outcome, labels, server.control.charges, server.propensities))
        exposure.add(lists)
        server.observe(lists, outcome, exposure)
        exposure.relabel()
        state = outcome.state
    found = item_trajectories(server.steps)
    record, fours = found.choices, (torch.arange(80) % 4 == 0).float()
    assert isinstance(record, Choices)
    off_menu = 0
    for t, (before, lists, outcome, labels, charges, probabilities) in enumerate(seen):
        index = found.state_index[:, t]
        assert torch.equal(found.state_users[index], before.users)
        assert torch.equal(
            found.state_queues[index], server.actor.items.encoder_input(before.queue)
        )
        items = record.candidates.items[index]
        at = items.clamp(min=0)
        # what was shown is among the candidates, once
        chosen = record.chosen[:, t]
        assert torch.equal(items.gather(1, chosen), lists)
        assert ((items[:, None] == lists[:, :, None]).sum(2) == 1).all()
        off_menu += int((chosen >= items.shape[1] - 2).sum())
        assert torch.equal(record.open_items[:, t], (items >= 0) & ~before.blocked.gather(1, at))
        assert torch.equal(record.costs[index], torch.stack([labels[at], -fours[at]], dim=2))
        wanted = charges.float()[:, at].transpose(0, 1)
        torch.testing.assert_close(record.charges[index], wanted)
        features = server.actor.items.features(before.users, before.queue, labels.bool())
        ours = record.candidates.features[index]
        for number, values in enumerate(features.values):
            torch.testing.assert_close(ours[:, :, number], values.gather(1, at))
        assert not ours[:, :, -1].any()  # the control alone prices the group
        assert torch.equal(record.propensities[:, t], probabilities)
        assert torch.equal(found.rewards[:, t], outcome.reward)
        spent = torch.stack([labels[lists].sum(1), -fours[lists].sum(1)], dim=1)
        assert torch.equal(found.costs[:, t], spent)
        assert torch.equal(found.lists[:, t], lists)
    assert found.rewards.sum() > 10
    if temperature:
        assert off_menu > 0


def test_an_update_learns_from_the_latest_steps(strong_model: Fcpo, market: Split):
    server = strong_model.online([PopularityLimit(LIMIT)])
    state, liked, exposure = begin(strong_model, market)
    answers, lists, left = Answers(liked), [], []
    for _ in range(MOST_STEPS + 3):
        left.append(PopularityLimit(LIMIT).budget(exposure, 60) / 60)
        lists.append(server.serve(state, exposure))
        outcome = advance(state, lists[-1], answers, exposure.sensitive)
        exposure.add(lists[-1])
        server.observe(lists[-1], outcome, exposure)
        state = outcome.state
    limit = max(left[3], LIMIT * MOST_STEPS) * (1 + strong_model.config.cost_tolerance)
    assert server._limits(60, MOST_STEPS).tolist() == pytest.approx([limit])
    assert server.budgets[3] == [pytest.approx(60 * left[3])]
    found = item_trajectories(server.steps)
    assert torch.equal(found.lists, torch.stack(lists[3:], dim=1))


def test_a_run_that_explores_is_continued_bit_for_bit(strong_model: Fcpo, market: Split):
    model = exploring(strong_model, 0.5)
    start = begin(model, market)
    server = model.online([PopularityLimit(LIMIT)])
    course(server, start, 4)
    kept = {name: value.clone() for name, value in server.tensors().items()}
    state, resumed = server.state, model.online([PopularityLimit(LIMIT)], seed=9)
    resumed.restore(kept, state)
    ours, theirs = (
        course(one, (state, start[1], begin(model, market)[2]), 4) for one in (server, resumed)
    )
    assert all(torch.equal(a, b) for a, b in zip(ours[0], theirs[0], strict=True))
    assert torch.equal(ours[1], theirs[1])


def test_a_run_of_another_policy_is_not_continued(strong_model: Fcpo, market: Split):
    server = strong_model.online([PopularityLimit(LIMIT)])
    start = begin(strong_model, market)
    course(server, start, 4)
    tensors = server.tensors()
    for part in ("weight", "bias"):
        head = tensors[f"actor.body.4.{part}"]
        tensors[f"actor.body.4.{part}"] = torch.cat([head, head])
    with pytest.raises(ModelError, match=r"another policy.*start it anew, without --resume"):
        strong_model.online([PopularityLimit(LIMIT)]).restore(tensors, start[0])


def test_a_gaussian_policy_has_another_way_to_explore():
    with pytest.raises((SettingsError, ValueError), match="set explore to 0"):
        FcpoConfig.preset("paper", explore=0.1)
    assert FcpoConfig().explore == 0
