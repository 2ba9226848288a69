"""Trajectories of a policy over items, against the environment replayed step by step."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fairhorizon.data.splits import Split
from fairhorizon.fcpo.networks import Actor, HistoryEncoder, StateEncoder, start_from
from fairhorizon.fcpo.policies import allowed_by_slot, policy_at
from fairhorizon.fcpo.rollouts import Choices, Trajectories, rollout_items
from fairhorizon.histories import UserItems
from fairhorizon.rankers.candidates import ScoredCandidates
from fairhorizon.rankers.ease import Ease
from fairhorizon.rankers.ensemble import Ensemble
from fairhorizon.rankers.itemknn import ItemKnn
from fairhorizon.recommenders.lists.features import EnsembleItems, initial_candidates
from fairhorizon.simulation.dynamics import advance
from fairhorizon.simulation.feedback import Scenario, evaluation_scenario
from fairhorizon.vocabulary import Protocol

World = tuple[Actor, Scenario, Tensor]
TEMPERATURE = 0.8


def sets(rows: np.ndarray) -> UserItems:
    chosen = [np.flatnonzero(row) for row in rows]
    indptr = np.concatenate([[0], np.cumsum([len(items) for items in chosen])])
    items = torch.from_numpy(np.concatenate(chosen))
    return UserItems(torch.from_numpy(indptr), items, rows.shape[1])


def over_embeddings(list_length: int) -> World:
    """12 users and 20 items, of which each user has taken some; all the others may be shown."""
    rng = np.random.default_rng(5)
    past = rng.random((12, 20)) < 0.15
    liked = ~past & (rng.random((12, 20)) < 0.4)
    scenario = Scenario(sets(past).last(3), sets(liked), sets(past))
    torch.manual_seed(1)
    encoder = StateEncoder(torch.randn(12, 4), torch.randn(20, 4), 6, 1)
    actor = Actor(encoder, list_length=list_length, hidden=(8, 8))
    with torch.no_grad():  # so that another queue is another policy
        actor.body[-1].weight.mul_(20)
    return actor, scenario, torch.from_numpy(rng.random(20) < 0.4)


@pytest.fixture(scope="module")
def ensemble(market: Split) -> Ensemble:
    return Ensemble((Ease().fit(market), ItemKnn().fit(market)), (0.9, 0.6))


def over_rankers(list_length: int, ensemble: Ensemble, market: Split) -> World:
    torch.manual_seed(2)
    n = market.train.n_items
    actor = Actor(
        HistoryEncoder(torch.randn(60, 1), torch.randn(n, 3)),
        EnsembleItems(ensemble, history=2, candidates=6),
        list_length=list_length,
        hidden=(8, 8),
    )
    start_from(actor, ensemble, initial_std=1.0)
    scenario = evaluation_scenario(market, ensemble.queue_length, Protocol.STANDARD)
    return actor, scenario, torch.from_numpy(market.train.item_counts() > 20)


@pytest.fixture(params=["embeddings-1", "embeddings-2", "rankers-1", "rankers-2"])
def world(request: pytest.FixtureRequest, ensemble: Ensemble, market: Split) -> World:
    kind, list_length = request.param.split("-")
    if kind == "embeddings":
        return over_embeddings(int(list_length))
    return over_rankers(int(list_length), ensemble, market)


def run(world: World, users: Tensor, *, steps: int, seed: int = 0) -> tuple[Trajectories, Any]:
    actor, scenario, sensitive = world
    attention = torch.tensor([1.0, 0.5, 0.25])[: actor.list_length]
    initial = initial_candidates(actor.items, scenario, users, sensitive)
    batch = rollout_items(
        actor,
        scenario,
        initial,
        sensitive,
        steps=steps,
        temperature=TEMPERATURE,
        attention=attention,
        generator=torch.Generator().manual_seed(seed),
    )
    assert batch.choices is not None
    return batch, attention


USERS = torch.tensor([5, 0, 11, 3, 7, 10, 4])


def test_equals_the_environment_step_by_step(world: World):
    actor, scenario, sensitive = world
    batch, attention = run(world, USERS, steps=6)
    record = batch.choices
    state, answers = scenario.begin(USERS)
    liked = scenario.positive.mask(USERS)
    for t in range(6):
        index, lists = batch.state_index[:, t], batch.lists[:, t]
        items = record.candidates.items[index]
        assert torch.equal(batch.state_users[index], USERS)
        assert torch.equal(batch.state_queues[index], actor.items.encoder_input(state.queue))
        # what could be chosen is among the candidates and was not shown yet
        at = items.clamp(min=0)
        assert torch.equal(record.open_items[:, t], (items >= 0) & ~state.blocked.gather(1, at))
        assert torch.equal(record.liked[index], (items >= 0) & liked.gather(1, at))
        assert torch.equal(record.costs[index][..., 0], (items >= 0) & sensitive[at])
        chosen = record.chosen[:, t]
        assert torch.equal(lists, items.gather(1, chosen.clamp(min=0)).where(chosen >= 0, -1))
        assert record.open_items[:, t].gather(1, chosen.clamp(min=0))[chosen >= 0].all()

        outcome = advance(state, lists, answers, sensitive)
        shown = (lists >= 0) & sensitive[lists.clamp(min=0)]
        assert torch.equal(batch.rewards[:, t], outcome.hits.float() @ attention)
        assert torch.equal(batch.costs[:, t, 0], shown.float() @ attention)
        if t < 5:  # a state changes after a hit, and only then
            moved = batch.state_index[:, t + 1] != index
            assert torch.equal(moved, outcome.hits.any(1))
        state = outcome.state
    assert batch.rewards.sum() >= 4
    assert batch.state_index.max() >= len(USERS)


def test_every_state_has_the_candidates_that_the_actor_would_make_there(world: World):
    actor, scenario, sensitive = world
    batch, _ = run(world, USERS, steps=5)
    candidate_set = batch.choices.candidates
    state, answers = scenario.begin(USERS)
    seen: set[int] = set()
    for t in range(5):
        index = batch.state_index[:, t]
        fresh = [row for row, number in enumerate(index.tolist()) if number not in seen]
        seen |= set(index.tolist())
        if fresh:
            rows = torch.tensor(fresh)
            made = actor.items.candidate_set(
                USERS[rows], state.queue[rows], state.blocked[rows], sensitive
            )
            assert torch.equal(candidate_set.items[index[rows]], made.items)
            if isinstance(candidate_set, ScoredCandidates):
                ours = candidate_set.features[index[rows]][made.items >= 0]
                torch.testing.assert_close(ours, made.features[made.items >= 0])
        state = advance(state, batch.lists[:, t], answers, sensitive).state
    assert len(seen) > len(USERS)


def test_probabilities_are_those_of_the_policy(world: World):
    actor, _, _ = world
    batch, _ = run(world, USERS, steps=5)
    record = batch.choices
    with torch.no_grad():
        outputs = actor(batch.state_users, batch.state_queues)
    chosen = record.chosen.flatten(0, 1)
    allowed = allowed_by_slot(record.open_items.flatten(0, 1), chosen)
    steps = batch.state_index.flatten()
    policy = policy_at(record.candidates, outputs, steps, allowed, TEMPERATURE)
    torch.testing.assert_close(policy.log_prob(chosen).view(7, 5), batch.log_probs)
    assert batch.log_probs.max() < 0
    # nothing was sampled but items
    assert batch.proposals.shape == (7, 5, 0)


def test_lists_have_no_repeats_and_end_with_the_catalogue():
    world = over_embeddings(2)
    _, scenario, _ = world
    batch, _ = run(world, torch.arange(12), steps=11)
    for user in range(12):
        shown = [item for item in batch.lists[user].flatten().tolist() if item >= 0]
        past = scenario.excluded.mask(torch.tensor([user]))[0].nonzero().flatten().tolist()
        assert sorted(shown + past) == list(range(20))
    empty = batch.lists < 0
    assert empty.any()
    assert (batch.log_probs[empty.all(2)] == 0).all()
    assert (batch.rewards[empty.all(2)] == 0).all()


def test_same_seed_same_trajectories(world: World):
    first, again, other = (run(world, USERS, steps=4, seed=seed)[0] for seed in (3, 3, 4))
    assert torch.equal(first.lists, again.lists)
    assert torch.equal(first.log_probs, again.log_probs)
    assert not torch.equal(first.lists, other.lists)


def test_initial_candidates_of_some_users_are_those_of_all_cut_out(world: World):
    actor, scenario, sensitive = world
    whole = initial_candidates(actor.items, scenario, torch.arange(12), sensitive)
    some = whole.take(torch.tensor([4, 9]))
    assert some.users.tolist() == [4, 9]
    alone = initial_candidates(actor.items, scenario, torch.tensor([4, 9]), sensitive)
    assert torch.equal(some.candidate_set.items, alone.candidate_set.items)


def unfolded(batch: Trajectories) -> dict[str, Tensor]:
    """By trajectory and step, so that the order of the state table drops out."""
    record: Choices = batch.choices
    index = batch.state_index
    return {
        "users": batch.state_users[index],
        "items": record.candidates.items[index],
        "features": record.candidates.features[index],
        "liked": record.liked[index],
        "sensitive": record.costs[index][..., 0],
        "open": record.open_items,
        "chosen": record.chosen,
        "rewards": batch.rewards,
    }


def test_take_and_join_keep_candidates_with_their_steps(ensemble: Ensemble, market: Split):
    world = over_rankers(2, ensemble, market)
    first, second = (run(world, users, steps=3, seed=1)[0] for users in (USERS, USERS[2:5]))
    rows = torch.tensor([6, 1, 1])
    part, whole = unfolded(first.take(rows)), unfolded(first)
    for name, column in part.items():
        assert torch.equal(column, whole[name][rows]), name
    joined, other = unfolded(Trajectories.join([first, second])), unfolded(second)
    for name, column in joined.items():
        assert torch.equal(column, torch.cat([whole[name], other[name]])), name
