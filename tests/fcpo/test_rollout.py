"""Trajectories against a slow replay of the lists, one user and one item at a time."""

from dataclasses import fields

import numpy as np
import pytest
import torch

from fairhorizon.fcpo.networks import Actor, StateEncoder
from fairhorizon.fcpo.policies import Proposal
from fairhorizon.fcpo.rollouts import Trajectories, rollout, serve
from fairhorizon.histories import UserItems
from fairhorizon.simulation.feedback import Scenario

N_USERS, N_ITEMS, DIM, HISTORY = 12, 30, 4, 3


def sets(rng: np.random.Generator, share: float, forbidden: np.ndarray | None = None) -> UserItems:
    rows = rng.random((N_USERS, N_ITEMS)) < share
    if forbidden is not None:
        rows &= ~forbidden
    chosen = [rng.permutation(np.flatnonzero(row)) for row in rows]
    indptr = np.concatenate([[0], np.cumsum([len(items) for items in chosen])])
    return UserItems(torch.from_numpy(indptr), torch.from_numpy(np.concatenate(chosen)), N_ITEMS)


def market(seed: int, list_length: int):
    """An actor with strong opinions about states, a scenario and the sensitive items."""
    rng = np.random.default_rng(seed)
    past = sets(rng, 0.1)
    liked = sets(rng, 0.4, past.mask(torch.arange(N_USERS)).numpy())
    scenario = Scenario(past.last(HISTORY), liked, past)
    torch.manual_seed(seed)
    encoder = StateEncoder(torch.randn(N_USERS, DIM), torch.randn(N_ITEMS, DIM), 6, 2)
    actor = Actor(encoder, list_length=list_length, hidden=(8, 8), initial_std=0.5)
    with torch.no_grad():  # so that another queue is another proposal
        for weight in (*encoder.gru.parameters(), actor.body[0].weight):
            weight.mul_(3)
        actor.body[-1].weight[: list_length * DIM].mul_(20)
    return actor, scenario, torch.from_numpy(rng.random(N_ITEMS) < 0.4)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def items_of(rows: UserItems, user: int) -> list[int]:
    return rows.mask(torch.tensor([user]))[0].nonzero().flatten().tolist()


def replay(scenario: Scenario, sensitive, user: int, lists, feedback: bool = True):
    """The queues before each step, rewards and costs, by the word of the paper."""
    queue, liked = scenario.queue[user].tolist(), set(items_of(scenario.positive, user))
    seen, queues, rewards, costs = set(items_of(scenario.excluded, user)), [], [], []
    for shown in lists:
        queues.append(queue)
        reward = 0
        for item in shown:
            if item < 0:
                continue
            assert item not in seen, "shown before, or part of the history"
            seen.add(item)
            if item in liked:
                reward += 1
                queue = [*queue[1:], item] if feedback else queue
        rewards.append(reward)
        costs.append(sum(bool(sensitive[item]) for item in shown if item >= 0))
    return queues, rewards, costs


@pytest.mark.parametrize(("list_length", "steps"), [(1, 8), (3, 5), (4, 9)])  # 36 > 30 items
def test_equals_a_slow_replay(list_length, steps):
    actor, scenario, sensitive = market(list_length, list_length)
    users = torch.tensor([5, 0, 11, 5, 3, 7])
    batch = rollout(actor, scenario, users, sensitive, steps=steps, generator=generator())
    assert batch.lists.shape == (6, steps, list_length)
    assert len(batch) == 6
    for row, user in enumerate(users.tolist()):
        lists = batch.lists[row].tolist()
        queues, rewards, costs = replay(scenario, sensitive, user, lists)
        assert batch.rewards[row].tolist() == rewards
        assert batch.costs[row, :, 0].tolist() == costs
        assert batch.state_queues[batch.state_index[row]].tolist() == queues
        assert batch.state_users[batch.state_index[row]].tolist() == [user] * steps
    assert batch.rewards.sum() > steps  # the queues did move


def test_slots_stay_empty_once_every_item_was_shown():
    actor, scenario, sensitive = market(4, 4)
    users = torch.arange(N_USERS)
    batch = rollout(actor, scenario, users, sensitive, steps=9, generator=generator())
    for user in range(N_USERS):
        shown = [item for item in batch.lists[user].flatten().tolist() if item >= 0]
        history = items_of(scenario.excluded, user)
        assert sorted(shown + history) == list(range(N_ITEMS))


@pytest.mark.parametrize("list_length", [1, 3])
def test_cached_encodings_equal_encoding_every_state_anew(list_length):
    actor, scenario, sensitive = market(7, list_length)
    batch = rollout(
        actor, scenario, torch.arange(N_USERS), sensitive, steps=6, generator=generator()
    )
    distinct = len(batch.state_users)
    hit_before_the_last = int((batch.rewards[:, :-1] > 0).sum())
    met_after_the_last = int((batch.rewards[:, -1] > 0).sum())
    assert distinct == N_USERS + hit_before_the_last + met_after_the_last
    with torch.no_grad():
        for t in range(6):
            index = batch.state_index[:, t]
            again = Proposal.from_outputs(
                actor(batch.state_users[index], batch.state_queues[index])
            )
            log_probs = again.log_prob(batch.proposals[:, t])
            torch.testing.assert_close(batch.log_probs[:, t], log_probs, rtol=1e-5, atol=1e-5)
        moved = index >= N_USERS
        start = Proposal.from_outputs(actor(torch.arange(N_USERS), scenario.queue))
        stale = start.log_prob(batch.proposals[:, -1])
        assert ((stale - log_probs).abs() > 0.01)[moved].all()  # an old encoding would be noticed
        assert moved.sum() > 5


def test_the_sampled_proposals_choose_the_lists():
    actor, scenario, sensitive = market(8, 2)
    users = torch.arange(N_USERS)
    batch = rollout(actor, scenario, users, sensitive, steps=4, generator=generator())
    blocked = scenario.begin(users)[0].blocked
    for t in range(4):
        assert torch.equal(actor.choose(batch.proposals[:, t], blocked), batch.lists[:, t])
        blocked = blocked.scatter(1, batch.lists[:, t], True)


def test_same_seed_same_trajectories_to_the_bit():
    actor, scenario, sensitive = market(9, 2)

    def run(seed: int) -> Trajectories:
        users = torch.arange(N_USERS)
        return rollout(actor, scenario, users, sensitive, steps=5, generator=generator(seed))

    first, again, other = run(3), run(3), run(4)
    assert first.choices is None  # they are of a policy over items
    for name in (field.name for field in fields(Trajectories) if field.type is torch.Tensor):
        assert torch.equal(getattr(first, name), getattr(again, name)), name
    assert not torch.equal(first.lists, other.lists)


@pytest.mark.parametrize(("length", "list_length"), [(6, 1), (7, 3)])
@pytest.mark.parametrize("sampled", [True, False])
def test_served_lists_have_no_repeats_and_are_the_same_again(length, list_length, sampled):
    actor, scenario, sensitive = market(10, list_length)

    def run(feedback: bool) -> torch.Tensor:
        noise = generator(1) if sampled else None
        return serve(actor, scenario, sensitive, length=length, generator=noise, feedback=feedback)

    with_feedback, without = run(True), run(False)
    assert torch.equal(with_feedback, run(True))
    assert not torch.equal(with_feedback, without)
    for lists in (with_feedback, without):
        assert lists.shape == (N_USERS, length)
        for user, row in enumerate(lists.tolist()):
            assert len(set(row)) == length
            assert not set(row) & set(items_of(scenario.excluded, user))


def test_without_feedback_the_state_stays():
    """Then the mean proposal stays too, and the lists are the items in the order of its scores."""
    actor, scenario, sensitive = market(11, 1)
    lists = serve(actor, scenario, sensitive, length=8, generator=None, feedback=False)
    state, _ = scenario.begin(torch.arange(N_USERS))
    with torch.no_grad():
        W = Proposal.from_outputs(actor(state.users, state.queue)).mean
    scores = (W @ actor.encoder.item_vectors[:-1].T).masked_fill(state.blocked, -torch.inf)
    assert torch.equal(lists, scores.argsort(dim=1, descending=True)[:, :8])
    liked = scenario.positive.mask(torch.arange(N_USERS)).gather(1, lists)
    assert liked.any()  # or nothing could have moved the state


def test_with_feedback_the_state_follows_the_hits():
    actor, scenario, sensitive = market(12, 1)
    lists = serve(actor, scenario, sensitive, length=6, generator=None, feedback=True)
    blocked = scenario.begin(torch.arange(N_USERS))[0].blocked
    for user, row in enumerate(lists.tolist()):
        steps = [[item] for item in row]
        queues, _, _ = replay(scenario, sensitive, user, steps)
        for queue, item in zip(queues, row, strict=True):
            with torch.no_grad():
                W = Proposal.from_outputs(actor(torch.tensor([user]), torch.tensor([queue]))).mean
            assert actor.choose(W, blocked[user : user + 1]).item() == item
            blocked[user, item] = True


@pytest.mark.parametrize("list_length", [1, 3])
def test_alternatives_are_answered_as_if_they_were_shown(list_length):
    actor, scenario, sensitive = market(5, list_length)
    users, steps = torch.tensor([5, 0, 11, 5]), 4
    batch = rollout(
        actor, scenario, users, sensitive, steps=steps, generator=generator(), alternatives=6
    )
    others = batch.alternatives
    assert others.proposals.shape == (4, steps, 6, list_length * DIM)
    assert others.rewards.unique().numel() > 1
    for row, user in enumerate(users.tolist()):
        liked, seen = set(items_of(scenario.positive, user)), items_of(scenario.excluded, user)
        for step in range(steps):
            blocked = torch.zeros(6, N_ITEMS, dtype=torch.bool)
            blocked[:, [*seen, *batch.lists[row, :step].flatten().tolist()]] = True
            lists = actor.choose(others.proposals[row, step], blocked).tolist()
            hits = [len(liked.intersection(shown)) for shown in lists]
            assert others.rewards[row, step].tolist() == hits
            spent = [sum(bool(sensitive[item]) for item in shown) for shown in lists]
            assert others.costs[row, step].tolist() == spent


def batch_of(seed: int, rows: int = 7) -> Trajectories:
    actor, scenario, sensitive = market(13, 2)
    users = torch.randperm(N_USERS, generator=generator(seed))[:rows]
    return rollout(actor, scenario, users, sensitive, steps=4, generator=generator(seed))


def unfolded(batch: Trajectories) -> dict[str, torch.Tensor]:
    """Every column by trajectory and step, so that the order of the state table drops out."""
    return {
        "users": batch.state_users[batch.state_index],
        "queues": batch.state_queues[batch.state_index],
        **{
            name: getattr(batch, name)
            for name in ("proposals", "log_probs", "lists", "rewards", "costs")
        },
    }


def test_take_keeps_rows_intact_and_drops_states_not_passed():
    batch = batch_of(0)
    for rows in (torch.tensor([4, 1, 6]), torch.tensor([2]), torch.tensor([3, 3])):
        part = batch.take(rows)
        assert len(part) == len(rows)
        whole = unfolded(batch)
        for name, column in unfolded(part).items():
            assert torch.equal(column, whole[name][rows]), name
        assert len(part.state_users) == len(batch.state_index[rows].unique())
        assert part.state_index.unique().tolist() == list(range(len(part.state_users)))


def test_join_keeps_rows_intact():
    parts = [batch_of(0, 7), batch_of(1, 3), batch_of(2, 5)]
    joined = Trajectories.join(parts)
    assert len(joined) == 15
    separate = [unfolded(part) for part in parts]
    for name, column in unfolded(joined).items():
        assert torch.equal(column, torch.cat([part[name] for part in separate])), name
    assert Trajectories.join(parts[:1]) is parts[0]
