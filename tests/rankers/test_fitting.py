"""Rankers before their fit, and fits side by side: the same numbers as one after the other."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch

from fairhorizon.data.frames import from_arrays
from fairhorizon.data.splits import Split, earlier_part
from fairhorizon.errors import DataError
from fairhorizon.rankers.bpr import Bpr
from fairhorizon.rankers.ease import Ease, EaseConfig, RecentEase, RecentEaseConfig
from fairhorizon.rankers.ensemble import FitJob, draft_of, fit_all, side_by_side
from fairhorizon.rankers.gru4rec import Gru4Rec, Gru4RecConfig
from fairhorizon.rankers.itemknn import ItemKnn
from fairhorizon.rankers.mf import Mf
from fairhorizon.rankers.popularity import Popularity
from fairhorizon.rankers.ridge import Ridge
from fairhorizon.settings import SettingsError
from fairhorizon.vocabulary import Protocol


@contextmanager
def threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@pytest.fixture(scope="module")
def taken_all() -> Split:
    """One user, who has taken every item: nothing to draw as an example of what is not liked."""
    log = from_arrays(np.zeros(3, dtype=int), np.arange(3))
    return Split(log, log.take([]), log.take([]))


def test_two_threads_give_the_numbers_of_one_in_the_order_of_the_jobs(market: Split) -> None:
    drafts = [
        *(Ridge(seed=1), Ease(seed=1), Gru4Rec(Gru4RecConfig(dim=4, max_epochs=1), seed=1)),
        *(ItemKnn(seed=1), Popularity(seed=1)),
    ]
    jobs = [FitJob(draft, part) for part in (market, earlier_part(market)) for draft in drafts]
    found = {}
    for count in (1, 2):
        with threads(count):
            found[count] = fit_all(jobs)
            assert torch.get_num_threads() == count
    one_by_one = [type(job.draft)(job.draft.config, seed=1).fit(job.split) for job in jobs]
    for job, alone, *others in zip(jobs, one_by_one, found[1], found[2], strict=True):
        for other in others:
            assert other is not None
            assert other.description() == alone.description()  # the method, its log and its seed
            assert other is not job.draft
            for name, value in alone.tensors().items():
                assert torch.equal(other.tensors()[name], value), (alone.method, name)


def test_results_are_in_order_and_a_job_in_a_thread_has_one_core() -> None:
    with threads(2):
        cores = side_by_side(
            lambda _: torch.get_num_threads(), range(6), lambda n: n % 3 != 1, at_once=2
        )
        assert cores == [1, 2, 1, 1, 2, 1]
        assert side_by_side(lambda n: n * n, range(6), lambda n: n % 2 == 0, at_once=2) == [
            0,
            1,
            4,
            9,
            16,
            25,
        ]


@pytest.mark.parametrize("in_thread", [True, False])
def test_an_error_is_not_lost(in_thread: bool) -> None:
    def work(number: int) -> float:
        return 1 / number

    with threads(2), pytest.raises(ZeroDivisionError):
        side_by_side(work, [1, 0, 2], lambda _: in_thread, at_once=2)


def test_a_ranker_that_its_log_does_not_allow_is_left_out(taken_all: Split) -> None:
    jobs = [FitJob(draft, taken_all) for draft in (Bpr(), Popularity(), Bpr())]
    with pytest.warns(UserWarning, match="without one of its rankers: every user took") as notes:
        first, second, third = fit_all(jobs)
    assert len(notes) == 1  # of two with the same reason
    assert (first, third) == (None, None)
    assert isinstance(second, Popularity)
    with pytest.raises(DataError, match="every user took all items"):
        fit_all([jobs[0], jobs[2]])


def test_what_is_ready_with_the_same_settings_is_taken_as_it_is(market: Split) -> None:
    ready = {"ease": Ease().fit(market)}
    same, other, missing = fit_all(
        [
            FitJob(Ease(), market, ready),
            FitJob(Ease(EaseConfig(l2=5.0)), market, ready),
            FitJob(Popularity(), market, ready),
        ]
    )
    assert same is ready["ease"]
    assert other is not None
    assert other.config == EaseConfig(l2=5.0)
    assert isinstance(missing, Popularity)


def test_only_a_ranker_that_validates_is_given_the_protocol() -> None:
    neural = draft_of(Mf, {"dim": 4}, Protocol.PAPER, 7)
    assert (neural.config.protocol, neural.config.dim, neural.seed) == (Protocol.PAPER, 4, 7)
    own = draft_of(Mf, {"protocol": "standard"}, Protocol.PAPER, 0)
    assert own.config.protocol is Protocol.STANDARD  # what is given stays
    closed_form = draft_of(RecentEase, {"half_life": 5}, Protocol.PAPER, 7)
    assert closed_form.config == RecentEaseConfig(half_life=5)
    with pytest.raises(SettingsError, match="there is no halflife"):
        draft_of(Ease, {"halflife": 5}, Protocol.PAPER, 7)
