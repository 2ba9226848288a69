"""FCPO in the long run: limits at every step, learning from feedback, continuing a stored run."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from fairhorizon.data.splits import Split
from fairhorizon.fcpo.config import FcpoConfig
from fairhorizon.fcpo.model import Fcpo
from fairhorizon.fcpo.online import OnlineFcpo
from fairhorizon.limits.counts import Exposure
from fairhorizon.limits.step_limits import GroupFloor, PopularityLimit, StepLimit
from fairhorizon.rankers import RANKERS
from fairhorizon.settings import changed
from fairhorizon.simulation.dynamics import advance
from fairhorizon.simulation.feedback import evaluation_scenario
from fairhorizon.vocabulary import Protocol

LIMIT = 0.3


class World:
    """The users of the market, served step by step."""

    def __init__(self, model: Fcpo, market: Split) -> None:
        scenario = evaluation_scenario(market, model.queue_length, Protocol.STANDARD)
        self.state, self.answers = scenario.begin(torch.arange(scenario.n_users))
        self.exposure = Exposure(market.train.item_counts())

    def step(self, server: OnlineFcpo) -> tuple[torch.Tensor, float]:
        """The lists shown, and the share of them that was in G0."""
        exposure = self.exposure
        lists = server.serve(self.state, exposure)
        share = float(exposure.sensitive[lists].float().mean())
        outcome = advance(self.state, lists, self.answers, exposure.sensitive)
        exposure.add(lists)
        server.observe(lists, outcome, exposure)
        exposure.relabel()
        self.state = outcome.state
        return lists, share

    def copy_of(self, other: "World") -> "World":
        state = other.state
        self.state = replace(state, users=state.users.clone(), queue=state.queue.clone())
        for name, value in vars(other.exposure).items():
            setattr(self.exposure, name, value.copy() if hasattr(value, "copy") else value)
        return self


KINDS: dict[str, dict[str, Any]] = {
    "paper": {"rounds": 2},
    "gaussian over rankers": {
        "warm_start": ("ease", "popularity"),
        "rounds": 0,
        "initial_std": 0.1,
    },
    "softmax over embeddings": {"policy": "softmax", "rounds": 1},
}


@pytest.fixture(scope="module", params=[*KINDS, "strong"])
def model(
    request: pytest.FixtureRequest, market: Split, small: FcpoConfig, small_strong: FcpoConfig
) -> Fcpo:
    if request.param == "strong":
        return Fcpo(changed(small_strong, {"alpha_prime": LIMIT, "rounds": 1}), seed=1).fit(market)
    update = KINDS[request.param] | {"alpha_prime": LIMIT}
    return Fcpo(small.model_copy(update=update), seed=1).fit(market)


# embeddings have no rankers, and without a price do not know the groups
OVER_RANKERS = pytest.mark.parametrize("model", ["strong"], indirect=True)


def parameters(server: OnlineFcpo) -> torch.Tensor:
    return torch.nn.utils.parameters_to_vector(server.actor.parameters()).detach()


@pytest.mark.slow
def test_the_limit_holds_at_every_step_while_labels_move(model: Fcpo, market: Split):
    world, server = World(model, market), model.online([PopularityLimit(LIMIT)])
    changed = 0
    for step in range(1, 21):
        before = world.exposure.sensitive
        world.step(server)
        changed += int((before != world.exposure.sensitive).sum())
        assert world.exposure.n_sensitive <= LIMIT * world.exposure.n_shown + 1e-9
        if step % 5 == 0:
            server.update()
    assert changed > 10  # or the labels did not move


def steps_in_violation_after_a_flip(model: Fcpo, market: Split, *limits: StepLimit) -> int:
    """Half of the tail becomes popular in mid-run; of the ten steps after it."""
    world, server = World(model, market), model.online(limits, learn=False)
    for _ in range(4):
        world.step(server)
    exposure = world.exposure
    labels = exposure.sensitive.clone()
    labels[(~labels).nonzero().squeeze(1)[::2]] = True
    exposure.sensitive, exposure.grouping = labels, lambda _: labels.numpy()
    broken = 0
    for _ in range(10):
        world.step(server)
        broken += exposure.n_sensitive > LIMIT * exposure.n_shown + 1e-9
    return broken


def test_a_flip_of_labels_is_answered_at_once(model: Fcpo, market: Split):
    assert steps_in_violation_after_a_flip(model, market, PopularityLimit(LIMIT)) == 0
    assert steps_in_violation_after_a_flip(model, market) >= 8  # what the flip does by itself


@OVER_RANKERS
def test_the_policy_sees_the_labels_of_the_moment(model: Fcpo, market: Split):
    world, server = World(model, market), model.online([PopularityLimit(LIMIT)])
    for _ in range(10):
        before = world.exposure.sensitive.float()
        world.step(server)
        assert torch.equal(server.policy.features.group, before)
    assert not torch.equal(before, world.exposure.initial.float())  # or they did not move


@pytest.mark.parametrize("model", ["paper"], indirect=True)
def test_without_the_control_the_policy_shows_what_it_would_anyway(model: Fcpo, market: Split):
    """The limit is left to learning, which takes d of equation 11 to it."""
    alone = Fcpo(changed(model.config, {"control": False}), seed=1)
    alone._take(model.policy_)
    # below the share of 10 % that the policy shows first without a limit
    limits = [PopularityLimit(0.05)]
    server = alone.online(limits)
    free, limited = model.online([], seed=1), model.online(limits, seed=1)
    lists = [World(model, market).step(one)[0] for one in (server, free, limited)]
    assert torch.equal(lists[0], lists[1])
    assert not torch.equal(lists[0], lists[2])
    assert server.learns
    assert server.notes() == {}  # no prices


def test_limits_of_a_round_by_hand(model: Fcpo, market: Split):
    """Five steps of one item; what is left at the start is that of one step."""
    floor = GroupFloor("half", torch.arange(market.train.n_items) % 2 == 0, 0.4)
    world, server = World(model, market), model.online([PopularityLimit(LIMIT), floor])
    world.step(server)
    steps = sum(model.config.gamma_c**t for t in range(5))
    room = model.config.cost_tolerance  # above the limit: a floor, which is below 0, comes nearer 0
    expected = [LIMIT * steps * (1 + room), -0.4 * (1 - room)]
    assert server._limits(60, 5).tolist() == pytest.approx(expected)


def test_an_update_learns_from_what_was_heard_and_leaves_the_model_alone(
    model: Fcpo, market: Split
):
    world, server = World(model, market), model.online([PopularityLimit(LIMIT)])
    before = parameters(server).clone()
    for _ in range(4):
        world.step(server)
    assert torch.equal(parameters(server), before)
    server.update()
    moved = parameters(server)
    assert not torch.equal(moved, before)
    server.update()  # no new feedback since
    assert torch.equal(parameters(server), moved)
    untouched = torch.nn.utils.parameters_to_vector(model.policy_.actor.parameters())
    assert torch.equal(untouched, before)


def test_it_learns_nothing_where_it_is_not_to(model: Fcpo, market: Split):
    world, server = World(model, market), model.online([PopularityLimit(LIMIT)], learn=False)
    before = parameters(server).clone()
    for _ in range(3):
        world.step(server)
    server.update()
    assert torch.equal(parameters(server), before)


def run(world: World, server: OnlineFcpo, steps: int) -> list[list[int]]:
    lists = [world.step(server)[0].squeeze(1).tolist() for _ in range(steps)]
    server.update()
    return lists


def test_a_restored_server_goes_on_as_it_would_have(model: Fcpo, market: Split):
    constraints: list[StepLimit] = [PopularityLimit(LIMIT)]
    world, server = World(model, market), model.online(constraints)
    run(world, server, 3)
    kept = {name: value.clone() for name, value in server.tensors().items()}
    other = World(model, market).copy_of(world)
    resumed = model.online(constraints, seed=99)
    resumed.restore(kept, other.state)
    assert run(other, resumed, 3) == run(world, server, 3)
    assert torch.equal(parameters(resumed), parameters(server))


@OVER_RANKERS
def test_scores_of_rankers_are_restored_not_computed_again(model: Fcpo, market: Split):
    world, server = World(model, market), model.online([PopularityLimit(LIMIT)])
    run(world, server, 3)
    resumed = model.online([PopularityLimit(LIMIT)])
    resumed.restore(server.tensors(), world.state)
    assert resumed.policy is not None
    assert resumed.policy.features.values is not server.policy.features.values
    for ours, theirs in zip(
        resumed.policy.features.values, server.policy.features.values, strict=True
    ):
        assert torch.equal(ours, theirs)
        assert ours.data_ptr() != theirs.data_ptr()


@pytest.mark.parametrize(
    "model",
    [name for name, kind in KINDS.items() if kind.get("policy") != "softmax"],
    indirect=True,
)
def test_a_replay_buffer_goes_on_too(model: Fcpo, market: Split):
    config = model.config.model_copy(update={"buffer_rounds": 2})

    def open_server() -> OnlineFcpo:
        return OnlineFcpo(
            model.policy_.actor,
            config,
            queue_length=model.queue_length,
            limits=[PopularityLimit(LIMIT)],
            learn=True,
            seed=3,
        )

    world, server = World(model, market), open_server()
    run(world, server, 3)
    kept = {name: value.clone() for name, value in server.tensors().items()}
    other, resumed = World(model, market).copy_of(world), open_server()
    resumed.restore(kept, other.state)
    assert run(other, resumed, 3) == run(world, server, 3)
    assert len(server.learner.buffer.rounds) == 2
    assert torch.equal(parameters(resumed), parameters(server))


@OVER_RANKERS
def test_rankers_of_a_warm_start_are_fitted_anew_between_rounds(model: Fcpo, market: Split):
    server = model.online([PopularityLimit(LIMIT)], retrain_on=market, round_length=4)
    retraining = server.retraining
    world = World(model, market)
    for step in range(1, 7):
        world.step(server)
        if step % 2 == 0:
            server.update()
        if step == 2:
            assert torch.equal(weights_of(server), weights_of(model.online([])))
        if step == 4:
            expected = RANKERS["ease:recent"](seed=1).fit(retraining.extended())
            assert torch.equal(weights_of(server), expected.item_weights_)
    assert len(retraining.liked()[0]) > 10
    assert not torch.equal(weights_of(server), weights_of(model.online([])))

    resumed = model.online([PopularityLimit(LIMIT)], retrain_on=market, round_length=4, seed=5)
    other = World(model, market).copy_of(world)
    resumed.restore({name: value.clone() for name, value in server.tensors().items()}, other.state)
    assert torch.equal(weights_of(resumed), weights_of(server))
    assert other.step(resumed)[0].tolist() == world.step(server)[0].tolist()


def weights_of(server: OnlineFcpo) -> torch.Tensor:
    return server.actor.items.ensemble.rankers[0].item_weights_


def test_a_limit_and_a_floor_hold_together_and_are_both_learned_under(model: Fcpo, market: Split):
    members = torch.arange(market.train.n_items) % 4 == 1
    constraints = [PopularityLimit(LIMIT), GroupFloor("every fourth", members, 0.4)]
    world, server = World(model, market), model.online(constraints)
    for step in range(1, 11):
        world.step(server)
        shown = world.exposure.shown
        assert world.exposure.n_sensitive <= LIMIT * world.exposure.n_shown + 1e-9
        assert shown[members.numpy()].sum() >= 0.4 * world.exposure.n_shown - 1e-9
        if step % 5 == 0:
            server.update()
    assert set(server.notes()) == {"price of popularity", "price of every fourth"}
    exposure = world.exposure
    share = exposure.shown[members.numpy()].sum() / exposure.n_shown
    popularity, floor = constraints
    assert floor.excess(exposure) == pytest.approx(0.4 - share)
    assert popularity.excess(exposure) == exposure.n_sensitive / exposure.n_shown - LIMIT
    assert len(server.learner.critics) == 3
