"""A team learns what one alone does: the same sums, the same draws, the same steps."""

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

import pytest
import torch
from torch import Tensor

from fairhorizon.agents.fcpo.config import FcpoConfig
from fairhorizon.agents.fcpo.learning.team import ALONE, Team
from fairhorizon.agents.fcpo.learning.together import UsersOfRank
from fairhorizon.agents.fcpo.learning.training import Training
from fairhorizon.agents.fcpo.model import Fcpo
from fairhorizon.agents.tasks import FitTask
from fairhorizon.data.splits import Split, split
from fairhorizon.data.synthetic import synthetic
from fairhorizon.rankers.mf import MfConfig

R = TypeVar("R")


class Table:
    """Where the threads of a test put down their parts."""

    def __init__(self, size: int) -> None:
        self.barrier = threading.Barrier(size, timeout=60)
        self.parts: list[Sequence[Tensor]] = [()] * size


class ThreadTeam(Team):
    """The plainest team: threads that add up what lies on a table, in the order of their ranks."""

    def __init__(self, rank: int, size: int, table: Table) -> None:
        self.rank, self.size, self.table = rank, size, table

    def sum(self, parts: Sequence[Tensor]) -> Sequence[Tensor]:
        table = self.table
        table.parts[self.rank] = [part.detach().clone() for part in parts]
        table.barrier.wait()
        sums = [torch.stack(same).sum(0).to(same[0]) for same in zip(*table.parts, strict=True)]
        table.barrier.wait()
        return sums


def by_threads(size: int, work: Callable[[Team], R]) -> list[R]:
    """What every member of a team returns."""
    table, results = Table(size), dict[int, R]()

    def run(rank: int) -> None:
        try:
            results[rank] = work(ThreadTeam(rank, size, table))
        except BaseException:
            table.barrier.abort()
            raise

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [results[rank] for rank in range(size)]


def trained(training: Training, size: int) -> list[Training]:
    """The training of every member, after all rounds."""

    def work(team: Team) -> Training:
        own = UsersOfRank.of(training, team.rank, team.size).training(team)
        for _ in own.rounds():
            pass
        return own

    return by_threads(size, work)


def everything(training: Training) -> Tensor:
    networks = training.actor, training.learner.critics
    return torch.cat([p.detach().flatten() for net in networks for p in net.parameters()])


@pytest.fixture(scope="module")
def uneven() -> Split:
    """37 users, so that no number of members divides them."""
    return split(synthetic(37, 50, 16, seed=5).interactions)


WAYS = {
    "two lists": {"list_length": 2, "gamma_c": 0.9, "gae_lambda": 0.7, "alpha_prime": 0.4},
    "some users": {"users_per_round": 23, "episodes_per_user": 2},
    "minibatch": {"minibatch": 19, "starts": "anywhere"},
    "few states": {"fisher_states": 3},  # members without any
}


@pytest.mark.parametrize("way", WAYS)
def test_a_team_learns_what_one_alone_does(way: str, uneven: Split, small: FcpoConfig) -> None:
    settings = {"precision": "double", "rounds": 2, "evaluate_every": 2}
    config = FcpoConfig.model_validate({**small.model_dump(), **settings, **WAYS[way]})
    alone = Fcpo(config, seed=2).session(FitTask.of(uneven)).training
    first = everything(alone)
    team = trained(alone, 3)
    list(alone.rounds())
    assert (everything(alone) - first).abs().max() > 1e-3  # there was something to learn
    for member in team:
        assert torch.equal(everything(member), everything(team[0]))
        assert (everything(member) - everything(alone)).abs().max() < 1e-6
        for ours, theirs in zip(member.reports, alone.reports, strict=True):
            assert (ours.case, ours.fraction) == (theirs.case, theirs.fraction)
            assert ours.reward == pytest.approx(theirs.reward, abs=1e-9)
            assert ours.cost == pytest.approx(theirs.cost, abs=1e-9)
            assert ours.kl == pytest.approx(theirs.kl, abs=1e-7)
            assert ours.validation == pytest.approx(theirs.validation, abs=1e-9)


def test_members_have_every_user_once() -> None:
    users = torch.randperm(37, generator=torch.Generator().manual_seed(1))

    def work(team: Team) -> list[int]:
        batches = list(team.batches(users, 10, torch.Generator().manual_seed(0)))
        for batch, some in zip(batches, users.split(10), strict=True):
            # the user at its row, whose code in the team is that with the member
            assert torch.equal(some[batch.rows], batch.users * team.size + team.rank)
        return [int(code) for batch in batches for code in batch.users]

    for size in (1, 2, 4):
        codes = by_threads(size, work)
        assert sorted(map(len, codes)) == sorted(len(range(r, 37, size)) for r in range(size))
        for rank, own in enumerate(codes):
            assert sorted(own) == list(range(len(range(rank, 37, size))))


def test_draws_do_not_depend_on_who_draws() -> None:
    users = torch.arange(7)
    like = torch.zeros(7, 20)
    (whole,) = ALONE.batches(users, 10, torch.Generator().manual_seed(3))
    numbers = whole.draws.normal(like)
    assert torch.equal(numbers, torch.randn(7, 20, generator=torch.Generator().manual_seed(3)))

    def work(team: Team) -> tuple[Tensor, Tensor]:
        (batch,) = team.batches(users, 10, torch.Generator().manual_seed(3))
        return batch.rows, batch.draws.normal(like[batch.rows])

    for rows, drawn in by_threads(3, work):
        assert torch.equal(drawn, numbers[rows])


def test_of_things_in_order_the_same_are_drawn() -> None:
    # 9 things at places of 12; the member of rank r has those that are r modulo 2
    places = torch.tensor([0, 1, 2, 4, 5, 6, 9, 10, 11])
    alone = ALONE.draw(5, places, 12, torch.Generator().manual_seed(8))
    assert torch.equal(alone, torch.randperm(9, generator=torch.Generator().manual_seed(8))[:5])

    def work(team: Team) -> Tensor:
        own = places[places % 2 == team.rank]
        return own[team.draw(5, own, 12, torch.Generator().manual_seed(8))]

    chosen = places[alone]
    for rank, own in enumerate(by_threads(2, work)):
        assert torch.equal(own, chosen[chosen % 2 == rank])  # in the order drawn


def test_a_team_of_one_leaves_the_generator_where_it_was(uneven: Split) -> None:
    """Which is why its lists are those of before."""
    config = FcpoConfig.preset("paper", rounds=1, pmf=MfConfig(dim=4, max_epochs=1), horizon=2)
    training = Fcpo(config).session(FitTask.of(uneven)).training
    training.round()
    expected = torch.Generator().manual_seed(0)
    for _ in range(2):
        torch.randn(37, 4, generator=expected)
    torch.randperm(len(training.learner.buffer.rounds[0].state_users), generator=expected)
    assert torch.equal(training.generator.get_state(), expected.get_state())


class Counting(Team):
    """Alone, and keeps the sizes of what would be sent, in bytes."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def sum(self, parts: Sequence[Tensor]) -> Sequence[Tensor]:
        self.sizes.append(sum(part.numel() * part.element_size() for part in parts))
        return parts


def test_a_round_sends_what_the_documents_say(market: Split, small: FcpoConfig) -> None:
    config = small.model_copy(update={"rounds": 1, "evaluate_every": 1})
    begun = Fcpo(config).session(FitTask.of(market)).training
    team = Counting()
    training = UsersOfRank.of(begun, 0, 1).training(team)
    team.sizes.clear()
    training.round()
    actor = 4 * sum(p.numel() for p in training.actor.parameters())
    critic = 4 * (1 + sum(p.numel() for p in training.learner.critics["cost"].parameters()))
    mask = (config.horizon + 1) * 60
    assert team.sizes.count(2 * actor) == 1
    assert 2 < team.sizes.count(actor) <= 2 * config.cg_iterations
    assert team.sizes.count(mask) == 1
    assert 2 * 10 <= team.sizes.count(critic) <= 2 * 1.25 * 10 + 1
    details = training.reports[0].details
    assert details is not None
    assert team.sizes.count(3 * 4) == details.attempts
    small_ones = [size for size in team.sizes if size not in (2 * actor, actor, mask, critic, 12)]
    # 7 means and numbers, 2 losses, 1 NDCG
    assert len(small_ones) == 10
    assert max(small_ones) < 8 * (2 * config.horizon + 4)
