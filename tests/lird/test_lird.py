"""LIRD: the parts of DDPG by hand, and learning where the right answer is known."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fairhorizon.data.frames import from_arrays
from fairhorizon.data.interactions import Interactions
from fairhorizon.data.splits import Split, split
from fairhorizon.errors import DataError
from fairhorizon.fcpo.networks import StateEncoder
from fairhorizon.fcpo.policies import Proposal
from fairhorizon.fcpo.rollouts import served_ndcg
from fairhorizon.histories import UserItems
from fairhorizon.lird import (
    Ddpg,
    Lird,
    LirdConfig,
    LirdTraining,
    ListActor,
    ListCritic,
    LoggedLists,
    Transitions,
    held_out,
    soft_update,
    unit_size,
)
from fairhorizon.methods import Method, MethodError, build, load_method
from fairhorizon.rankers.mf import MfConfig
from fairhorizon.recommenders.progress import Listener
from fairhorizon.simulation.feedback import evaluation_scenario
from fairhorizon.vocabulary import Protocol

N_USERS, N_ITEMS, DIM, HISTORY, K = 6, 12, 4, 3, 2

SMALL = LirdConfig(
    pmf=MfConfig(dim=8, target="interaction", max_epochs=3),
    list_length=2,
    horizon=3,
    history=3,
    gru_hidden=8,
    actor_hidden=16,
    critic_hidden=16,
    rounds=3,
    updates=5,
    batch=32,
)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def list_actor(seed: int = 0, noise: float = 0.3) -> ListActor:
    torch.manual_seed(seed)
    encoder = StateEncoder(torch.randn(N_USERS, DIM), torch.randn(N_ITEMS, DIM), 5, 1)
    return ListActor(encoder, list_length=K, hidden=8, temperature=0.5, noise=noise)


def ddpg(**rates: float) -> Ddpg:
    actor = list_actor()
    critic = ListCritic(actor.encoder.output_size, K * DIM, 8)
    usual = {"gamma": 0.5, "actor_rate": 0.01, "critic_rate": 0.01, "target_rate": 0.1}
    return Ddpg(actor, critic, **(usual | rates))


def batch(size: int = 40) -> Transitions:
    draw = generator(1)
    return Transitions(
        torch.randint(N_USERS, (size,), generator=draw),
        torch.randint(N_ITEMS + 1, (size, HISTORY), generator=draw),
        torch.randint(-1, N_ITEMS, (size, K), generator=draw),
        torch.randint(K + 1, (size,), generator=draw).float(),
        torch.randint(N_ITEMS + 1, (size, HISTORY), generator=draw),
    )


def vector(module: nn.Module) -> Tensor:
    return nn.utils.parameters_to_vector(module.parameters()).detach()


def test_targets_follow_by_the_rate() -> None:
    target, source = nn.Linear(1, 1), nn.Linear(1, 1)
    with torch.no_grad():
        for module, values in ((target, (1.0, -2.0)), (source, (5.0, 2.0))):
            module.weight.fill_(values[0])
            module.bias.fill_(values[1])
    soft_update(target, source, 0.25)
    assert (target.weight.item(), target.bias.item()) == (2.0, -1.0)
    soft_update(target, source, 0.25)
    assert (target.weight.item(), target.bias.item()) == (2.75, -0.25)
    assert (source.weight.item(), source.bias.item()) == (5.0, 2.0)


def test_an_update_moves_the_targets_by_the_rate_towards_the_new_networks() -> None:
    learner = ddpg(target_rate=0.1)
    before = vector(learner.target_actor), vector(learner.target_critic)
    learner.update(batch())
    for old, target, source in zip(
        before,
        (learner.target_actor, learner.target_critic),
        (learner.actor, learner.critic),
        strict=True,
    ):
        assert (vector(source) - old).abs().max() > 0.005  # Adam has moved it
        torch.testing.assert_close(vector(target), 0.9 * old + 0.1 * vector(source))


def test_the_target_is_reward_and_discounted_value_by_the_target_networks() -> None:
    learner, rows = ddpg(gamma=0.7), batch(5)
    with torch.no_grad():
        for parameter in (*learner.actor.parameters(), *learner.critic.parameters()):
            parameter.add_(1.0)  # what learns must not matter
        actor, items = learner.target_actor, learner.target_actor.encoder.item_vectors[:-1]
        for row, target in enumerate(learner.targets(rows)):
            one = slice(row, row + 1)
            state = actor.encoder(rows.users[one], rows.next_queues[one])
            proposals = actor.body(state).view(K, DIM)
            blends = []
            for proposal in proposals:
                weights = np.exp([float(proposal @ item) / 0.5 for item in items])
                shares = torch.tensor(weights / weights.sum(), dtype=torch.float32)
                blends.append(sum(p * item for p, item in zip(shares, items, strict=True)))
            value = learner.target_critic(state, torch.cat(blends)[None])
            expected = float(rows.rewards[row]) + 0.7 * value.item()
            assert target.item() == pytest.approx(expected, rel=1e-4)


def test_an_empty_slot_is_embedded_as_nothing() -> None:
    actor = list_actor()
    embedded = actor.embedded(torch.tensor([[3, -1]]))[0]
    assert torch.equal(embedded[:DIM], actor.encoder.item_vectors[3])
    assert torch.equal(embedded[DIM:], torch.zeros(DIM))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.floats(0, 0.95))
def test_items_are_the_best_by_inner_product_without_repeats(seed: int, share: float) -> None:
    actor, draw = list_actor(), generator(seed)
    proposals = torch.randn(4, K * DIM, generator=draw)
    blocked = torch.rand(4, N_ITEMS, generator=draw) < share
    chosen = actor.choose(proposals, blocked)
    for row in range(4):
        left = set((~blocked[row]).nonzero().flatten().tolist())
        for slot in range(K):
            proposal = proposals[row].view(K, DIM)[slot]
            scores = {item: float(actor.encoder.item_vectors[item] @ proposal) for item in left}
            item = int(chosen[row, slot])
            if not left:
                assert item == -1
                continue
            assert scores[item] == pytest.approx(max(scores.values()), abs=1e-5)
            left.remove(item)


def test_the_noise_is_a_share_of_the_proposals_own_size() -> None:
    proposal = Proposal.from_outputs(
        list_actor(noise=0.3)(torch.arange(3), torch.randint(N_ITEMS, (3, HISTORY)))
    )
    sizes = proposal.mean.square().mean(1).sqrt()
    torch.testing.assert_close(
        proposal.log_std.exp(), 0.3 * sizes[:, None].expand_as(proposal.mean)
    )
    still = Proposal.from_outputs(
        list_actor(noise=0.0)(torch.arange(3), torch.full((3, HISTORY), 1))
    )
    assert torch.equal(still.sample(generator()), still.mean)


def test_a_step_of_the_critic_lowers_the_error_and_one_of_the_actor_raises_the_value() -> None:
    learner, rows = ddpg(actor_rate=1e-3, critic_rate=1e-3, target_rate=1e-9), batch()

    def losses() -> tuple[float, float]:
        with torch.no_grad():
            states = learner.actor.encoder(rows.users, rows.queues)
            return float(learner.critic_loss(states, rows)), float(learner.actor_loss(states))

    first, _ = losses()
    body = vector(learner.actor.body)
    states = learner.actor.encoder(rows.users, rows.queues)
    learner.critic_loss(states, rows).backward(inputs=learner.critic_parameters)
    learner.critic_optimiser.step()
    error, loss = losses()
    assert error < first
    assert torch.equal(vector(learner.actor.body), body)

    before = vector(learner.critic), vector(learner.actor.encoder)
    with torch.no_grad():
        states = learner.actor.encoder(rows.users, rows.queues)
    learner.actor_loss(states).backward(inputs=learner.actor_parameters)
    learner.actor_optimiser.step()
    assert losses()[1] < loss
    assert torch.equal(vector(learner.critic), before[0])
    assert torch.equal(vector(learner.actor.encoder), before[1])


def test_repeated_updates_fit_a_fixed_batch() -> None:
    learner, rows = ddpg(gamma=0.0, critic_rate=0.03), batch(20)
    for _ in range(80):
        learner.update(rows)
    with torch.no_grad():
        error = learner.critic_loss(learner.actor.encoder(rows.users, rows.queues), rows)
    assert error < 0.1 * rows.rewards.var()


def test_logged_lists_are_what_followed_in_the_log_of_one_user() -> None:
    # users: [0 1 2 3], [4 1 5], [2]
    items = UserItems(torch.tensor([0, 4, 7, 8]), torch.tensor([0, 1, 2, 3, 4, 1, 5, 2]), 7)
    logged = LoggedLists(items, 2)
    many = logged.after(torch.full((200,), 1), generator())
    assert {tuple(row) for row in many.tolist()} == {(2, 3), (5, -1)}
    assert 70 < int((many[:, 0] == 2).sum()) < 130  # either place as often
    many = logged.after(torch.full((200,), 2), generator())
    assert {tuple(row) for row in many.tolist()} == {(3, -1), (-1, -1)}
    for unknown in (6, 7):  # an item without users, and the mark of no item
        many = logged.after(torch.full((400,), unknown), generator())
        places = {(1, 2), (2, 3), (3, -1), (-1, -1), (1, 5), (5, -1)}
        assert {tuple(row) for row in many.tolist()} == places


def test_transitions_join_and_take_rows() -> None:
    first, second = batch(3), batch(2)
    joined = Transitions.join([first, second])
    assert len(joined) == 5
    part = joined.take(torch.tensor([4, 0]))
    assert torch.equal(part.queues, torch.stack([second.queues[1], first.queues[0]]))
    assert torch.equal(part.rewards, torch.stack([second.rewards[1], first.rewards[0]]))


@pytest.mark.parametrize("logged", [0.0, 0.5, 1.0])
def test_an_episode_is_a_chain_of_states_with_the_hits_as_reward(
    market: Split, logged: float
) -> None:
    config = SMALL.model_copy(update={"logged": logged, "users_per_round": 20})
    items = UserItems.from_log(market.train)
    torch.manual_seed(0)
    vectors = torch.randn(items.n_users, 8), torch.randn(items.n_items, 8)
    sensitive = torch.zeros(items.n_items, dtype=torch.bool)
    training = LirdTraining(items, config, vectors=vectors, sensitive=sensitive, seed=0)
    episode = training.play()
    assert len(episode) == 20 * config.horizon
    taken = items.mask(episode.users)
    for step in range(config.horizon - 1):
        now, then = (slice(20 * t, 20 * (t + 1)) for t in (step, step + 1))
        assert torch.equal(episode.next_queues[now], episode.queues[then])
    for row in range(len(episode)):
        shown = episode.lists[row].tolist()
        liked = int(episode.rewards[row])
        assert liked <= sum(bool(taken[row, item]) for item in shown if item >= 0)
        assert (
            episode.next_queues[row].tolist()[: config.history - liked]
            == (episode.queues[row].tolist()[liked:])
        )
    assert episode.rewards.sum() > 0


def log(*rows: list[int]) -> Interactions:
    """Each user's items in the order taken."""
    users = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    times = np.concatenate([np.arange(len(row)) for row in rows])
    return from_arrays(users, np.concatenate(rows), timestamps=times)


def test_tastes_are_learnt() -> None:
    """Two halves of the users take items of their own half of the catalogue, in any order."""
    rng = np.random.default_rng(0)
    halves = [list(range(30)), list(range(30, 60))]
    rows = [rng.permutation(halves[user % 2])[:20].tolist() for user in range(80)]
    parts = split(log(*rows))
    pmf = MfConfig(dim=8, target="interaction", batch=256, learning_rate=0.02)
    config = SMALL.model_copy(update={"pmf": pmf, "rounds": 4, "updates": 40, "batch": 64})
    model = Lird(config).fit(parts)
    lists = model.recommend(evaluation_scenario(parts, 3, Protocol.STANDARD), length=8)
    half = parts.train.item_ids[lists].astype(int) // 30
    assert (
        half == parts.train.user_ids.astype(int)[:, None] % 2
    ).mean() > 0.9  # untrained 0.3 to 0.6


@pytest.fixture(scope="module")
def fitted(market: Split) -> Lird:
    return Lird(SMALL, seed=2).fit(market)


@pytest.mark.parametrize("feedback", [False, True])
def test_lists_hold_no_history_and_never_repeat(
    market: Split, fitted: Lird, feedback: bool
) -> None:
    scenario = evaluation_scenario(market, 3, Protocol.STANDARD)
    lists = fitted.recommend(scenario, length=11, feedback=feedback)
    assert lists.shape == (60, 11)
    assert lists.dtype == np.int64
    known = UserItems.from_log(market.train, market.validation).mask(torch.arange(60)).numpy()
    assert all(len(set(row)) == 11 for row in lists.tolist())
    assert not np.take_along_axis(known, lists, axis=1).any()
    free = fitted.recommend(evaluation_scenario(market, 3, Protocol.PAPER), length=11)
    assert np.take_along_axis(known, free, axis=1).any()


def test_same_seed_same_lists_and_a_second_fit_starts_anew(market: Split, fitted: Lird) -> None:
    scenario = evaluation_scenario(market, 3, Protocol.STANDARD)
    lists = fitted.recommend(scenario, length=10)
    other = Lird(SMALL, seed=3).fit(market)
    assert (other.recommend(scenario, length=10) != lists).any()
    other.seed = 2
    other.fit(market)
    assert (other.recommend(scenario, length=10) == lists).all()
    assert other.validation_ == fitted.validation_


def test_a_file_gives_the_same_lists(market: Split, fitted: Lird, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model.safetensors")
    loaded = load_method(tmp_path / "model.safetensors")
    assert isinstance(loaded, Lird)
    scenario = evaluation_scenario(market, 3, Protocol.STANDARD)
    for feedback in (False, True):
        lists = fitted.recommend(scenario, length=10, feedback=feedback)
        assert (loaded.recommend(scenario, length=10, feedback=feedback) == lists).all()
    assert loaded.description() == fitted.description()


class Epochs(Listener):
    def __init__(self, seen: list[tuple[int, float]]) -> None:
        self.seen = seen

    def epoch(self, number: int, value: float) -> None:
        self.seen.append((number, value))


def test_the_best_round_is_kept(market: Split) -> None:
    reported: list[tuple[int, float]] = []
    config = SMALL.model_copy(update={"rounds": 12, "patience": 2, "actor_rate": 0.05})
    model = Lird(config).fit(market, listener=Epochs(reported))
    assert [value for _, value in reported] == model.validation_
    assert [number for number, _ in reported] == list(range(1, len(reported) + 1))
    scenario = held_out(market, config)
    now = served_ndcg(model.actor_, scenario, model.sensitive_, length=20, generator=None)
    assert now == max(model.validation_)
    if len(reported) < config.rounds:
        assert len(reported) == model.validation_.index(now) + 1 + config.patience


def test_without_validation_items_the_last_training_items_stand_in() -> None:
    parts = split(log([0, 1, 2], [1, 0], [2, 1, 0, 3], [3]))
    bare = Split(parts.train, parts.validation.take([]), parts.test)
    scenario = held_out(bare, SMALL)
    train = UserItems.from_log(bare.train)
    counts = train.indptr.diff()
    assert torch.equal(scenario.positive.indptr.diff(), counts.clamp(max=1))
    assert torch.equal(scenario.positive.items, train.items[train.indptr[1:][counts > 0] - 1])


def test_sizes_become_one() -> None:
    vectors = torch.tensor([[3.0, 4.0], [0.0, 15.0]])
    assert unit_size(vectors).tolist() == [[pytest.approx(0.3), pytest.approx(0.4)], [0.0, 1.5]]
    assert unit_size(torch.zeros(2, 2)).tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_a_log_with_nothing_to_train_on_is_refused() -> None:
    parts = split(log([0], [1]))  # the only item of a user is for validation
    with pytest.raises(DataError, match="nothing to train on"):
        Lird(SMALL).fit(parts)


def test_it_is_a_method_without_a_dial() -> None:
    model = build(Method.parse("lird"), {"gamma": 0.25, "pmf": {"dim": 7}}, seed=5)
    assert isinstance(model, Lird)
    assert (model.config.gamma, model.config.pmf.dim, model.seed) == (0.25, 7, 5)
    assert model.config.pmf.target == "interaction"
    with pytest.raises(MethodError, match="no level to set"):
        Method.parse("lird@0.4")
