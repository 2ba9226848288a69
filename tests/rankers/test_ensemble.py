"""Several rankers as one: what is useless is dropped, the sum is no worse than the best ranker,
and what is said about a log, by hand."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fairhorizon.data.frames import from_arrays
from fairhorizon.data.loading import load
from fairhorizon.data.splits import Split, earlier_part, split
from fairhorizon.errors import DataError
from fairhorizon.histories import UserItems
from fairhorizon.rankers.bpr import Bpr
from fairhorizon.rankers.ease import RecentEase, RecentEaseConfig
from fairhorizon.rankers.ensemble import (
    EnsembleTask,
    FittedEnsemble,
    Member,
    fit_ensemble,
    summary_of,
    with_selected_settings,
)
from fairhorizon.rankers.gru4rec import Gru4RecConfig
from fairhorizon.rankers.itemknn import RecentItemKnn, RecentItemKnnConfig
from fairhorizon.rankers.popularity import Popularity
from fairhorizon.rankers.ranker import Ranker
from fairhorizon.rankers.ridge import Ridge, RidgeConfig
from fairhorizon.rankers.selection import LaterPart, Shortlists
from fairhorizon.settings import Settings
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
def fit(parts: Split) -> FittedEnsemble:
    return fit_ensemble(DRAFTS, EnsembleTask(parts, STANDARD, 0))


def test_a_useless_ranker_is_dropped(fit: FittedEnsemble) -> None:
    kept = [ranker.method for ranker in fit.whole.rankers]
    assert "noise" not in kept
    assert fit.earlier is not None
    assert [ranker.method for ranker in fit.earlier.rankers] == kept
    assert (fit.earlier.weights, fit.earlier.ndcg) == (fit.whole.weights, fit.whole.ndcg)
    assert len(fit.whole.weights) == len(fit.whole.ndcg) == len(kept)
    assert max(fit.whole.weights) == 1
    assert min(fit.whole.weights) > 0
    assert [member.method for member in fit.tried] == [d.method for d in DRAFTS]
    assert fit.tried[0].weight == 0
    of_all = {member.method: member for member in fit.tried}
    assert fit.whole.weights == tuple(of_all[name].weight for name in kept)
    assert fit.whole.ndcg == tuple(of_all[name].ndcg for name in kept)


def test_the_sum_is_no_worse_than_the_best_ranker_on_what_it_was_chosen_on(
    parts: Split, fit: FittedEnsemble
) -> None:
    later = LaterPart.from_training(parts, STANDARD, seed=0)
    last = LaterPart.from_split(parts, UserItems.from_log(parts.validation), STANDARD, seed=0)
    whole = [type(draft)(draft.config).fit(parts) for draft in DRAFTS]
    earlier = [type(draft)(draft.config).fit(later.split) for draft in DRAFTS]
    shortlists = [
        Shortlists.from_rankers(rankers, part)
        for part, rankers in ((last, whole), (later, earlier))
    ]

    def ndcg(weights: Tensor) -> float:
        return float(torch.cat([some.ndcg(weights) for some in shortlists]).mean())

    alone = [ndcg(unit) for unit in torch.eye(len(DRAFTS))]
    assert [one.ndcg for one in fit.tried] == pytest.approx(alone, abs=1e-6)
    together = ndcg(torch.tensor([one.weight for one in fit.tried]))
    assert together >= max(alone)
    assert fit.whole.summary[2].endswith(f"together {together:.4f}")


def test_one_fit_is_of_the_whole_log_and_one_of_its_earlier_part(
    parts: Split, fit: FittedEnsemble
) -> None:
    inner = earlier_part(parts)
    assert fit.earlier is not None
    for whole, earlier in zip(fit.whole.rankers, fit.earlier.rankers, strict=True):
        assert whole.fingerprint_ == parts.train.fingerprint()
        assert earlier.fingerprint_ == inner.train.fingerprint()
        assert (whole.config, whole.seed) == (earlier.config, earlier.seed)
        for fitted, log in ((whole, parts), (earlier, inner)):
            again = type(fitted)(fitted.config, seed=fitted.seed).fit(log)
            for name, value in again.tensors().items():
                assert torch.equal(fitted.tensors()[name], value)


def test_what_is_ready_is_not_fitted_again(parts: Split) -> None:
    whole, earlier = RecentEase().fit(parts), RecentEase().fit(earlier_part(parts))
    task = EnsembleTask(parts, STANDARD, 0, {"ease:recent": earlier}, {"ease:recent": whole})
    fit = fit_ensemble([RecentEase()], task)
    assert fit.whole.rankers == (whole,)
    assert fit.earlier is not None
    assert fit.earlier.rankers == (earlier,)
    other = fit_ensemble(
        [RecentEase(RecentEaseConfig(l2=7.0))], task
    )  # with other settings it is another
    assert other.whole.rankers[0] is not whole
    assert other.whole.rankers[0].config == RecentEaseConfig(l2=7.0)


def test_a_log_without_anything_later_has_equal_weights_and_one_fit() -> None:
    log = from_arrays([0, 1, 2], [0, 1, 2])
    fit = fit_ensemble(
        [RecentEase(), Popularity()],
        EnsembleTask(Split(log, log.take([]), log.take([])), STANDARD, 0),
    )
    assert fit.whole.weights == (1.0, 1.0)
    assert fit.earlier is None
    assert fit.whole.ndcg == (0.0, 0.0)
    task = EnsembleTask(Split(log, log.take([]), log.take([])), STANDARD, 0)
    drafts = [RecentEase(), Ridge()]
    assert with_selected_settings(drafts, task, {}.__getitem__) == drafts


def test_a_ranker_that_either_log_does_not_allow_is_left_out(parts: Split) -> None:
    """Every user has taken all items that there are: no examples for BPR."""
    log = from_arrays([0] * 5 + [1] * 5, [*range(5), *range(5)])
    full = Split(log, log.take([]), log.take([]))
    with pytest.warns(UserWarning, match="without one of its rankers: every user took all items"):
        fit = fit_ensemble([Popularity(), Bpr()], EnsembleTask(full, STANDARD, 0))
    assert [ranker.method for ranker in fit.whole.rankers] == ["popularity"]
    assert [one.method for one in fit.tried] == ["popularity"]
    nothing = Split(parts.train.take([]), parts.validation, parts.test)
    with pytest.raises(DataError, match="nothing to train on"):
        fit_ensemble([Popularity(), RecentEase()], EnsembleTask(nothing, STANDARD, 0))


def test_settings_are_chosen_with_those_that_are_given_left_alone(parts: Split) -> None:
    given = {"half_life": 5.0}
    drafts = [RecentEase(RecentEaseConfig(half_life=5.0), seed=4), Popularity(seed=4)]
    ease, popularity = with_selected_settings(
        drafts,
        EnsembleTask(parts, STANDARD, 0),
        {"ease:recent": given, "popularity": {}}.__getitem__,
    )
    assert isinstance(ease.config, RecentEaseConfig)
    assert ease.config.half_life == 5.0
    assert ease.config != RecentEaseConfig(half_life=5.0)
    assert (ease.seed, popularity.seed) == (4, 4)


# what is said about a log

NONE = Popularity().config
ALWAYS = RecentEaseConfig(half_life=None, training_half_life=None)
RECENT = RecentItemKnnConfig()


def log_of(*lengths: int, tied: int = 0) -> Split:
    """A training log of histories of these lengths; the first `tied` rows of each share a time."""
    users = np.repeat(np.arange(len(lengths)), lengths)
    items = np.concatenate([np.arange(length) for length in lengths])
    times = np.concatenate([np.maximum(np.arange(length), tied - 1) for length in lengths])
    log = from_arrays(users, items, timestamps=times)
    return Split(log, log.take([]), log.take([]))


def test_three_lines_by_hand() -> None:
    members = (
        Member("ease:recent", 1.0, RecentEaseConfig(l2=1000.0, half_life=None), 0.31236),
        Member("ridge", 0.625, RidgeConfig(decays=(0.93, 1.0)), 0.3),
        Member("itemknn:recent", 0.1, RECENT, 0.25),
        Member("popularity", 0.0, NONE, 0.125),
    )
    assert summary_of(log_of(2, 3, 12), members, 0.33333) == (
        "log: short histories (median 3 training items), where recent items say more to some "
        "rankers",
        "rankers, by weight: ease:recent 1 (l2=1000 half_life=None), ridge 0.62 (decays=0.93/1), "
        "itemknn:recent 0.1; without popularity",
        "NDCG@20 of what came later in training, and of validation: ease:recent 0.3124, "
        "ridge 0.3000, itemknn:recent 0.2500, popularity 0.1250; together 0.3333",
    )


def test_the_protocol_is_no_finding() -> None:
    config = Gru4RecConfig(protocol=Protocol.PAPER, dim=32)
    assert str(Member("gru4rec", 0.5, config, 0.1)) == "gru4rec 0.5 (dim=32)"


@pytest.mark.parametrize(
    ("lengths", "tied", "words"),
    [
        ((9,), 0, "short histories (median 9 training items)"),
        ((10,), 0, "medium histories (median 10 training items)"),
        ((39, 40), 0, "medium histories (median 39.5 training items)"),
        ((40,), 0, "long histories (median 40 training items)"),
        ((20,), 2, "medium histories (median 20 training items)"),  # a tenth and no more
        ((20,), 5, "medium histories (median 20 training items), 25 % of the rows tied in time"),
    ],
)
def test_the_kind_of_a_log(lengths: tuple[int, ...], tied: int, words: str) -> None:
    alone = (Member("popularity", 1.0, NONE, 0.1),)
    assert summary_of(log_of(*lengths, tied=tied), alone, 0.1)[0] == f"log: {words}"


@pytest.mark.parametrize(
    ("configs", "words"),
    [
        ((ALWAYS, NONE), "where recent items say no more than others"),
        ((RECENT, NONE), "where recent items say more"),
        ((RidgeConfig(decays=(1.0,)), ALWAYS), "where recent items say no more than others"),
        ((RidgeConfig(decays=(0.9, 1.0)), RECENT), "where recent items say more"),
        ((RECENT, ALWAYS), "where recent items say more to some rankers"),
    ],
)
def test_recency_is_that_of_the_rankers_with_a_weight(
    configs: tuple[Settings, ...], words: str
) -> None:
    members = [Member("some", 1.0, config, 0.1) for config in configs]
    without = Member("other", 0.0, ALWAYS if words.endswith("more") else RECENT, 0.0)
    kind = summary_of(log_of(5), (*members, without), 0.1)[0]
    assert kind == f"log: short histories (median 5 training items), {words}"


def test_figures_are_over_both_parts(market: Split) -> None:
    """What came later in training, and validation: every user of either counts once."""
    fit = fit_ensemble([Popularity()], EnsembleTask(market, STANDARD, 0))
    later = LaterPart.from_training(market, STANDARD, seed=0)
    last = LaterPart.from_split(market, UserItems.from_log(market.validation), STANDARD, seed=0)
    values = torch.cat([part.ndcg(Popularity().fit(part.split)) for part in (last, later)])
    assert fit.tried[0].ndcg == pytest.approx(float(values.mean()), rel=1e-6)
    assert fit.whole.summary[1] == "rankers, by weight: popularity 1"
    assert fit.whole.summary[2].endswith(f"{values.mean():.4f}; together {values.mean():.4f}")
