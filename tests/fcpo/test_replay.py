"""The replay buffer holds the latest rounds and draws whole trajectories."""

import torch

from fairhorizon.fcpo.rollouts import ReplayBuffer, Trajectories

STEPS = 3


def round_of(number: int, rows: int = 4) -> Trajectories:
    """A round in which every number encodes round, trajectory and step."""
    code = 100 * number + 10 * torch.arange(rows)[:, None] + torch.arange(STEPS)  # (rows, STEPS)
    return Trajectories(
        state_users=code.flatten(),
        state_queues=code.flatten()[:, None].repeat(1, 2),
        state_index=torch.arange(rows * STEPS).view(rows, STEPS),
        proposals=code[:, :, None].float(),
        log_probs=-code.float(),
        lists=code[:, :, None],
        rewards=code.float(),
        costs=code[:, :, None].float() / 2,
    )


def whole(batch: Trajectories) -> list[int]:
    """The trajectories' codes, once every column was found to agree with them."""
    codes = batch.rewards.long()
    assert torch.equal(codes - codes[:, :1], torch.arange(STEPS).expand(len(codes), -1))
    for column in (
        batch.state_users[batch.state_index],
        batch.state_queues[batch.state_index][:, :, 1],
        batch.proposals[:, :, 0],
        -batch.log_probs,
        batch.lists[:, :, 0],
        2 * batch.costs[:, :, 0],
    ):
        assert torch.equal(column.long(), codes)
    return codes[:, 0].tolist()


def test_a_small_buffer_is_given_whole_and_in_order():
    buffer = ReplayBuffer(2)
    buffer.add(round_of(1))
    assert whole(buffer.sample(4, torch.Generator())) == [100, 110, 120, 130]
    buffer.add(round_of(2, rows=2))
    assert whole(buffer.sample(99, torch.Generator())) == [100, 110, 120, 130, 200, 210]


def test_the_oldest_round_goes():
    buffer = ReplayBuffer(2)
    for number in (1, 2, 3):
        buffer.add(round_of(number))
    codes = whole(buffer.sample(99, torch.Generator()))
    assert codes == [200, 210, 220, 230, 300, 310, 320, 330]


def test_a_minibatch_is_drawn_without_replacement():
    buffer = ReplayBuffer(3)
    for number in (1, 2, 3):
        buffer.add(round_of(number))
    generator, seen = torch.Generator().manual_seed(0), set()
    for _ in range(20):
        codes = whole(buffer.sample(5, generator))
        assert len(codes) == len(set(codes)) == 5
        seen.update(codes)
    assert len(seen) == 12  # every trajectory comes at some time


def test_a_restored_buffer_draws_from_the_same_rounds():
    buffer, other = ReplayBuffer(2), ReplayBuffer(2)
    for number in (1, 2, 3):
        buffer.add(round_of(number))
    other.add(round_of(9))
    other.restore(buffer.tensors(), torch.device("cpu"))
    everything = whole(other.sample(100, torch.Generator()))
    assert everything == whole(buffer.sample(100, torch.Generator()))
    assert everything[0] == 200


def test_on_policy_there_is_nothing_to_keep():
    buffer = ReplayBuffer(1)
    buffer.add(round_of(1))
    assert buffer.tensors() == {}


def test_same_seed_same_minibatch():
    buffer = ReplayBuffer(1)
    buffer.add(round_of(1, rows=9))
    draws = [whole(buffer.sample(4, torch.Generator().manual_seed(seed))) for seed in (5, 5, 6)]
    assert draws[0] == draws[1] != draws[2]
