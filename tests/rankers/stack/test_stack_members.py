"""The rankers of a stack: what is useless is dropped, and the sum is no worse than the best."""

from typing import Any

import pytest
import torch
from torch import Tensor

from fairhorizon.data.frames import from_arrays
from fairhorizon.data.sources import load
from fairhorizon.data.splits import Split, earlier_part, split
from fairhorizon.errors import DataError
from fairhorizon.histories import UserItems
from fairhorizon.rankers.bpr import Bpr
from fairhorizon.rankers.ease import RecentEase, RecentEaseConfig
from fairhorizon.rankers.itemknn import RecentItemKnn
from fairhorizon.rankers.popularity import Popularity
from fairhorizon.rankers.ranker import Ranker
from fairhorizon.rankers.ridge import Ridge
from fairhorizon.rankers.stack.later_part import LaterPart
from fairhorizon.rankers.stack.members import Members, StackTask, adapted, weighed_members
from fairhorizon.rankers.stack.weighing import Shortlists
from fairhorizon.vocabulary import OnEpoch, Protocol

STANDARD = Protocol.STANDARD


class Noise(Popularity):
    """Scores that have nothing to do with anybody."""

    method = "noise"

    def _learn(self, split: Split, on_epoch: OnEpoch | None) -> None:
        super()._learn(split, on_epoch)
        self.n_items = split.train.n_items

    def scores(self, users: Tensor, queue: Tensor) -> Tensor:  # noqa: ARG002
        shape = (len(users), self.n_items)
        return torch.randn(shape, generator=torch.Generator().manual_seed(int(users[0])))


DRAFTS: tuple[Ranker[Any], ...] = (Noise(), RecentEase(), RecentItemKnn(), Popularity())


@pytest.fixture(scope="module")
def parts() -> Split:
    return split(load("synthetic:users=150,items=80,interactions_per_user=20"))


@pytest.fixture(scope="module")
def members(parts: Split) -> Members:
    return weighed_members(DRAFTS, StackTask(parts, STANDARD, 0))


def test_a_useless_ranker_is_dropped(members: Members) -> None:
    kept = [ranker.method for ranker in members.whole]
    assert "noise" not in kept
    assert [ranker.method for ranker in members.earlier] == kept
    assert len(members.weights) == len(members.ndcg) == len(kept)
    assert max(members.weights) == 1
    assert min(members.weights) > 0
    assert [member.method for member in members.findings.members] == [d.method for d in DRAFTS]
    assert members.findings.members[0].weight == 0
    of_all = {member.method: member for member in members.findings.members}
    assert members.weights == tuple(of_all[name].weight for name in kept)
    assert members.ndcg == tuple(of_all[name].ndcg for name in kept)


def test_the_sum_is_no_worse_than_the_best_ranker_on_what_it_was_chosen_on(
    parts: Split, members: Members
) -> None:
    later = LaterPart.of_training(parts, STANDARD, seed=0)
    last = LaterPart.of(parts, UserItems.of(parts.validation), STANDARD, seed=0)
    whole = [type(draft)(draft.config).fit(parts) for draft in DRAFTS]
    earlier = [type(draft)(draft.config).fit(later.split) for draft in DRAFTS]
    shortlists = [
        Shortlists.of_rankers(rankers, part) for part, rankers in ((last, whole), (later, earlier))
    ]

    def ndcg(weights: Tensor) -> float:
        return float(torch.cat([some.ndcg(weights) for some in shortlists]).mean())

    alone = [ndcg(unit) for unit in torch.eye(len(DRAFTS))]
    assert [one.ndcg for one in members.findings.members] == pytest.approx(alone, abs=1e-6)
    together = ndcg(torch.tensor([one.weight for one in members.findings.members]))
    assert together >= max(alone)
    assert members.findings.accuracy.endswith(f"together {together:.4f}")


def test_one_fit_is_of_the_whole_log_and_one_of_its_earlier_part(
    parts: Split, members: Members
) -> None:
    inner = earlier_part(parts)
    for whole, earlier in zip(members.whole, members.earlier, strict=True):
        assert whole.fingerprint_ == parts.train.fingerprint()
        assert earlier.fingerprint_ == inner.train.fingerprint()
        assert (whole.config, whole.seed) == (earlier.config, earlier.seed)
        for fitted, log in ((whole, parts), (earlier, inner)):
            again = type(fitted)(fitted.config, seed=fitted.seed).fit(log)
            for name, value in again.tensors().items():
                assert torch.equal(fitted.tensors()[name], value)


def test_what_is_ready_is_not_fitted_again(parts: Split) -> None:
    whole, earlier = RecentEase().fit(parts), RecentEase().fit(earlier_part(parts))
    task = StackTask(parts, STANDARD, 0, {"ease:recent": earlier}, {"ease:recent": whole})
    members = weighed_members([RecentEase()], task)
    assert members.whole == (whole,)
    assert members.earlier == (earlier,)
    other = weighed_members(
        [RecentEase(RecentEaseConfig(l2=7.0))], task
    )  # with other settings it is another
    assert other.whole[0] is not whole
    assert other.whole[0].config == RecentEaseConfig(l2=7.0)


def test_a_log_without_anything_later_has_equal_weights_and_one_fit() -> None:
    log = from_arrays([0, 1, 2], [0, 1, 2])
    members = weighed_members(
        [RecentEase(), Popularity()], StackTask(Split(log, log.take([]), log.take([])), STANDARD, 0)
    )
    assert members.weights == (1.0, 1.0)
    assert members.earlier == ()
    assert members.ndcg == (0.0, 0.0)
    task = StackTask(Split(log, log.take([]), log.take([])), STANDARD, 0)
    drafts = [RecentEase(), Ridge()]
    assert adapted(drafts, {}, task) == drafts


def test_a_ranker_that_either_log_does_not_allow_is_left_out(parts: Split) -> None:
    """Every user has taken all items that there are: no examples for BPR."""
    log = from_arrays([0] * 5 + [1] * 5, [*range(5), *range(5)])
    full = Split(log, log.take([]), log.take([]))
    with pytest.warns(UserWarning, match="without one of its rankers: every user took all items"):
        members = weighed_members([Popularity(), Bpr()], StackTask(full, STANDARD, 0))
    assert [ranker.method for ranker in members.whole] == ["popularity"]
    assert [one.method for one in members.findings.members] == ["popularity"]
    nothing = Split(parts.train.take([]), parts.validation, parts.test)
    with pytest.raises(DataError, match="nothing to train on"):
        weighed_members([Popularity(), RecentEase()], StackTask(nothing, STANDARD, 0))


def test_settings_are_chosen_with_those_that_are_given_left_alone(parts: Split) -> None:
    given = {"half_life": 5.0}
    drafts = [RecentEase(RecentEaseConfig(half_life=5.0), seed=4), Popularity(seed=4)]
    ease, popularity = adapted(
        drafts, {"ease:recent": given, "popularity": {}}.__getitem__, StackTask(parts, STANDARD, 0)
    )
    assert isinstance(ease.config, RecentEaseConfig)
    assert ease.config.half_life == 5.0
    assert ease.config != RecentEaseConfig(half_life=5.0)
    assert (ease.seed, popularity.seed) == (4, 4)
