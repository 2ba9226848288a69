"""Rankers in a long run: rounds worked by hand, and against lists that are made at once."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load, save

from fairhorizon.data.splits import with_feedback
from fairhorizon.errors import ConfigError, ModelError
from fairhorizon.evaluation.long_term import LongRun, LongRunSettings
from fairhorizon.histories import UserItems
from fairhorizon.limits.counts import Exposure
from fairhorizon.limits.groups import popular_group
from fairhorizon.rankers.ease import Ease
from fairhorizon.rankers.mf import Mf, RankingMfConfig
from fairhorizon.rankers.popularity import Popularity, PopularityConfig
from fairhorizon.rankers.ranker import Ranker
from fairhorizon.recommenders.ranked.model import Ranked
from fairhorizon.rerank.exposure import ExposureFairness
from fairhorizon.rerank.penalty import Penalty
from fairhorizon.rerank.quota import Quota
from fairhorizon.simulation.dynamics import advance
from fairhorizon.simulation.feedback import Scenario, evaluation_scenario
from fairhorizon.vocabulary import Labels, Protocol


class Given(Ranker[PopularityConfig]):
    """Scores that are given: one row a user."""

    method = "given"
    config_class = PopularityConfig
    fingerprint_ = ""

    def __init__(self, scores):
        super().__init__()
        self.scores_ = torch.tensor(scores, dtype=torch.float32)

    def _learn(self, split, on_epoch):  # noqa: ARG002
        raise AssertionError("nothing to learn")

    def scores(self, users, queue):  # noqa: ARG002
        return self.scores_[users]

    def tensors(self):
        return {}

    def restore(self, tensors):
        pass


class LastLiked(Given):
    """The newest item of the history lifts the item after it above all others."""

    @property
    def queue_length(self):
        return 1

    def scores(self, users, queue):
        n_items = self.scores_.shape[1]
        lifted = torch.nn.functional.one_hot(queue[:, -1] + 1, n_items + 2)[:, :n_items]
        return self.scores_[users] + 100 * lifted


def scenario(n_users, n_items, liked=None):
    """Users without a history; `liked` lists what each of them likes."""
    liked = liked or [[]] * n_users
    items = torch.tensor([item for some in liked for item in some], dtype=torch.int64)
    starts = torch.tensor([0, *map(len, liked)]).cumsum(0)
    return Scenario(torch.full((n_users, 1), n_items), UserItems(starts, items, n_items), None)


def watch(server, users, exposure, steps, on_step=None):
    """(steps, n_users) items shown, those of longer lists one after the other."""
    state, feedback = users.begin(torch.arange(users.n_users))
    shown = []
    for step in range(1, steps + 1):
        lists = server.serve(state, exposure)
        outcome = advance(state, lists, feedback, exposure.sensitive)
        exposure.add(lists)
        server.observe(lists, outcome, exposure)
        state = outcome.state
        shown += lists.T.tolist()
        if on_step is not None:
            on_step(step)
        exposure.relabel()
    return shown


def test_a_quota_in_rounds_of_four_worked_by_hand():
    """User 0 ranks 0 1 2 3 ... 7, user 1 ranks 2 1 0 3 ... 7; the group is the two items with the
    highest counts, and a quota of a quarter allows one of it in a round of four.

    Counts 5 4 4 0 0 0 0 0 make items 0 and 1 the group. Round 1: user 0 gets 0, and as 1 is over
    the quota 2 3 4; user 1 gets 2 1 and, 0 being over the quota, 3 4. After step 1 counts are
    6 4 5: item 2 is in the group in place of 1, but not for this round, or user 0 would get 1 and
    not 2 in step 2. Round 2 has the rest: 1 5 6 7 and 0 5 6 7.
    """
    model = Ranked(Given([[9, 8, 7, 6, 5, 4, 3, 2], [7, 8, 9, 6, 5, 4, 3, 2]]), Quota(share=0.25))
    exposure = Exposure(
        np.array([5, 4, 4, 0, 0, 0, 0, 0]), lambda counts: popular_group(counts, 0.25)
    )
    server = model.online(round_length=4)
    shown = watch(server, scenario(2, 8), exposure, 9)
    assert shown == [[0, 2], [2, 1], [3, 3], [4, 4], [1, 0], [5, 5], [6, 6], [7, 7], [-1, -1]]
    # under the labels of its moment: 0 in step 1, 2 in step 2, 0 in step 5
    assert (exposure.n_shown, exposure.n_sensitive, exposure.in_group[Labels.FIRST].sum()) == (
        16,
        3,
        4,
    )


def test_labels_are_frozen_for_a_round_and_new_in_the_next():
    """One user, items by falling score, one of the group in a round of four.

    Round 1 shows 0 and, as 1 is of the group too, 2 3 4. In its midst the group becomes 2 3 5 6.
    Round 2 shows 1, which is free now, 5, which is the one of the group, and so not 6 but 7 8.
    """
    group = [0, 1]

    def change(step):
        if step == 1:
            group[:] = [2, 3, 5, 6]

    model = Ranked(Given([[20 - item for item in range(10)]]), Quota(share=0.25))
    exposure = Exposure(np.zeros(10), lambda _: np.isin(np.arange(10), group))
    server = model.online(round_length=4)
    shown = watch(server, scenario(1, 10), exposure, 8, on_step=change)
    assert shown == [[0], [2], [3], [4], [1], [5], [7], [8]]


def test_beyond_the_candidates_only_when_they_have_nothing_left():
    """Rounds of two have four candidates. The quota allows none of the group, items 0 to 2.

    Round 1, candidates 0 1 2 3: item 3, then the best of the rest, 4. Round 2, candidates 0 1 2 5:
    5 and 6. Round 3, where 7 is the last item that is not of the group: 7, and then item 0 after
    all.
    """
    model = Ranked(Given([[9, 8, 7, 6, 5, 4, 3, 2]]), Quota(share=0))
    exposure = Exposure(np.array([1, 1, 1, 0, 0, 0, 0, 0]), lambda _: np.arange(8) < 3)
    shown = watch(model.online(round_length=2), scenario(1, 8), exposure, 9)
    assert shown == [[3], [4], [5], [6], [7], [0], [1], [2], [-1]]


def test_a_penalty_is_that_of_the_scores_when_its_round_begins():
    """Scores 5 to 0 have deviation sqrt(35/12): twice that, 3.42, is off items 0 and 1.

    Round 1 shows 2 and 3. Of what is left, 5 4 1 0, the deviation is sqrt(17/4), and 5 - 4.12 is
    less than 1: item 4 before item 0, and then 0.
    """
    model = Ranked(Given([[5, 4, 3, 2, 1, 0]]), Penalty(weight=2))
    exposure = Exposure(np.zeros(6), lambda _: np.arange(6) < 2)
    shown = watch(model.online(round_length=2), scenario(1, 6), exposure, 4)
    assert shown == [[2], [3], [4], [0]]


def test_a_penalty_however_high_chooses_among_the_candidates():
    model = Ranked(Given([[5, 4, 3, 2, 1, 0]]), Penalty(weight=50))
    exposure = Exposure(np.zeros(6), lambda _: np.arange(6) < 2)
    shown = watch(model.online(round_length=1), scenario(1, 6), exposure, 2)
    assert shown == [[0], [2]]  # of 0 1, both of the group, and of 1 2


def test_of_equals_after_the_handicap_the_smaller_item_comes_first():
    """Scores 0 and 2 have deviation 1: two of it make item 1 the equal of item 0."""
    model = Ranked(Given([[0, 2]]), Penalty(weight=2))
    exposure = Exposure(np.zeros(2), lambda _: np.arange(2) == 1)
    shown = watch(model.online(round_length=2), scenario(1, 2), exposure, 2)
    assert shown == [[0], [1]]


@pytest.mark.parametrize("reranker", [None, Quota(share=0.5), Penalty(weight=1)])
def test_likes_lift_the_next_item_at_once(reranker):
    """User 0 likes item 1 and is then shown item 2, user 1 likes nothing."""
    model = Ranked(LastLiked([[1, 9, 0, 5, 4, 3], [1, 9, 0, 5, 4, 3]]), reranker)
    exposure = Exposure(np.zeros(6), lambda _: np.arange(6) > 4)
    users = scenario(2, 6, liked=[[1], []])
    shown = watch(model.online(round_length=3), users, exposure, 3)
    assert shown == [[1, 1], [2, 3], [3, 4]]


def test_lists_of_several_items_share_the_allowance():
    """Rounds of 5 become 6, three lists of two; a quota of a third allows two of the group."""
    model = Ranked(Given([[9, 8, 7, 6, 5, 4, 3, 2]]), Quota(share=1 / 3))
    exposure = Exposure(np.zeros(8), lambda _: np.arange(8) < 4)
    server = model.online(list_length=2, round_length=5)
    assert server.round_length == 6
    shown = watch(server, scenario(1, 8), exposure, 4)
    assert shown == [[0], [1], [4], [5], [6], [7], [2], [3]]  # the next round has two more


RERANKERS = [
    None,
    Quota(share=0.4),
    Penalty(weight=0.7),
    ExposureFairness(),
    ExposureFairness().at_level(0.3),
]


def name(reranker):
    return "none" if reranker is None else str(reranker.model_dump())


@pytest.mark.parametrize("list_length", [1, 3])
@pytest.mark.parametrize("reranker", RERANKERS, ids=name)
def test_a_round_is_the_list_that_is_handed_out_at_once(market, reranker, list_length):
    """Over as many candidates, twice the 15 items; what a quota needs is among them here."""
    mf = Ranked(Mf(RankingMfConfig(dim=4, max_epochs=2), seed=1)).fit(market)
    users = evaluation_scenario(market, 1, Protocol.STANDARD)
    exposure = Exposure(market.train.item_counts())
    server = mf.reranked(reranker).online(list_length=list_length, round_length=15, seed=7)
    shown = watch(server, users, exposure, 15 // list_length)
    if isinstance(reranker, ExposureFairness):
        reranker = reranker.model_copy(update={"candidates": 30})
    at_once = mf.reranked(reranker).recommend(users, length=15, seed=7)
    assert np.array_equal(np.array(shown).T, at_once)


def test_popularity_shows_the_rest_of_the_catalogue_by_count(market):
    """By a loop over users: counts falling, the smaller item first, history left out."""
    model = Ranked(Popularity()).fit(market)
    users = evaluation_scenario(market, 1, Protocol.STANDARD)
    shown = watch(model.online(), users, Exposure(market.train.item_counts()), 80)
    order = np.argsort(-market.train.item_counts(), kind="stable")
    history = users.excluded.mask(torch.arange(60)).numpy()
    for user, items in enumerate(np.array(shown).T):
        left = [item for item in order if not history[user, item]]
        assert items.tolist() == left + [-1] * (80 - len(left))


def test_ease_is_the_interactive_list(market):
    model = Ranked(Ease()).fit(market)
    users = evaluation_scenario(market, model.queue_length, Protocol.STANDARD)
    exposure = Exposure(market.train.item_counts())
    shown = watch(model.online(), users, exposure, 25)
    assert np.array_equal(np.array(shown).T, model.recommend(users, length=25, feedback=True))


@pytest.mark.parametrize("reranker", [None, Quota(share=0.4)], ids=name)
def test_retrained_it_ranks_as_if_fitted_on_all_that_was_liked(market, reranker):
    config = RankingMfConfig(dim=4, max_epochs=3)
    fitted = Ranked(Mf(config, seed=1), reranker).fit(market)
    before = {name: tensor.clone() for name, tensor in fitted.ranker.tensors().items()}
    exposure = Exposure(market.train.item_counts())
    server = fitted.online(round_length=10, retrain_on=market)
    state, feedback = evaluation_scenario(market, 1, Protocol.STANDARD).begin(torch.arange(60))
    liked = []
    for step in range(30):
        if step in (10, 20):
            longer = with_feedback(market, *np.array(liked).T)
            assert len(longer.train) == len(market.train) + len(liked)
            fresh = Ranked(Mf(config, seed=1), reranker).fit(longer)
            fresh.sensitive_ = exposure.sensitive
            starts = torch.cat([torch.zeros(1), state.blocked.sum(1).cumsum(0)]).long()
            left_out = UserItems(starts, state.blocked.nonzero()[:, 1], 80)
            now = replace(scenario(60, 80), excluded=left_out)
            expected = fresh.recommend(now, length=10)
            assert not np.array_equal(fitted.recommend(now, length=10), expected)
        lists = server.serve(state, exposure)
        if step >= 10:
            assert np.array_equal(lists[:, 0], expected[:, step % 10])
        outcome = advance(state, lists, feedback, exposure.sensitive)
        exposure.add(lists)
        server.observe(lists, outcome, exposure)
        exposure.relabel()
        liked += [(u, int(lists[u, 0])) for u in outcome.hits[:, 0].nonzero().flatten().tolist()]
        state = outcome.state
    assert len(liked) > 20
    assert all(tensor.equal(before[name]) for name, tensor in fitted.ranker.tensors().items())


@pytest.mark.parametrize("reranker", RERANKERS, ids=name)
@pytest.mark.parametrize(
    ("ranker", "retrain"),
    [
        (Ease(), False),
        (Popularity(), True),
        (Mf(RankingMfConfig(dim=4, max_epochs=2)), True),
        (Mf(RankingMfConfig(dim=4, max_epochs=2)), False),
    ],
    ids=["ease", "popularity-anew", "mf-anew", "mf"],
)
def test_a_stored_server_goes_on_as_if_nothing_had_happened(market, ranker, retrain, reranker):
    model = Ranked(ranker, reranker).fit(market)

    def begin(seed):
        server = model.online(round_length=5, retrain_on=market if retrain else None, seed=seed)
        users = evaluation_scenario(market, server.queue_length, Protocol.STANDARD)
        return LongRun(server, users, Exposure(market.train.item_counts()))

    whole = begin(seed=3)
    stored, rows = [whole.tensors()], []
    for _ in range(13):
        rows.append(whole.step())
        stored.append(whole.tensors())
    for taken in (0, 5, 8):  # before the first round, between two, within one
        resumed = begin(seed=9)
        resumed.step()
        resumed.restore(load(save(stored[taken])))
        for expected in rows[taken:]:
            row = resumed.step()
            assert row | {"seconds": 0} == pytest.approx(
                expected | {"seconds": 0}, rel=0, abs=0, nan_ok=True
            )
        assert resumed.state.blocked.equal(whole.state.blocked)
        assert resumed.recommender.remarks == whole.recommender.remarks


class Uneven(LastLiked):
    """As in floating-point sums: a user's scores depend on the other users of the batch."""

    def scores(self, users, queue):
        return super().scores(users, queue).roll(len(users), dims=1)


@pytest.mark.parametrize("reranker", [None, Quota(share=0.5)], ids=name)
def test_scores_are_stored_where_they_cannot_be_computed_again(market, reranker):
    scores = np.random.default_rng(5).normal(size=(60, 80))
    model = Ranked(Uneven(scores), reranker)

    def begin():
        users = evaluation_scenario(market, 1, Protocol.STANDARD)
        server = model.online(round_length=10)
        return LongRun(server, users, Exposure(market.train.item_counts()))

    whole, resumed = begin(), begin()
    assert sum(whole.step()["reward"] for _ in range(15)) > 0.5  # some were asked about again
    resumed.restore(whole.tensors())
    for _ in range(20):
        whole.step()
        resumed.step()
    assert resumed.state.blocked.equal(whole.state.blocked)


def test_what_cannot_be_reached_is_kept_not_said(market):
    """The 20 most popular items hold all 16 of the group: no ranking of them shows less."""
    model = Ranked(Popularity(), ExposureFairness().at_level(0.1)).fit(market)
    server = model.online(round_length=10)
    users = evaluation_scenario(market, 1, Protocol.PAPER)
    watch(server, users, Exposure(market.train.item_counts()), 10)
    assert server.remarks == [
        "for 60 of 60 users no ranking of the 20 candidates gives the group at most 10 % of the "
        "exposure; they get the nearest one"
    ]


def test_a_quota_holds_in_a_long_run_as_far_as_labels_stay(market):
    """Labels that never move: after every round of ten, exactly the quota was shown."""
    model = Ranked(Popularity(), Quota(share=0.3)).fit(market)
    server = model.online(round_length=10)
    users = evaluation_scenario(market, 1, Protocol.PAPER)
    settings = LongRunSettings(relabel_every=1000, alpha_prime=0.3, warm_up=0)
    run = LongRun(server, users, Exposure(market.train.item_counts()), settings)
    rows = [run.step() for _ in range(40)]
    assert [row["popularity_rate"] for row in rows[9::10]] == pytest.approx([0.3] * 4)
    assert rows[0]["popularity_rate"] == 1
    assert rows[0]["violation"] == pytest.approx(0.7)
    # 1, 1, 1, 3/4, ... the first nine steps are above, then those up to the tenth of each round:
    rates = [(3 * (step // 10) + min(step % 10, 3)) / step for step in range(1, 41)]
    assert [row["popularity_rate"] for row in rows] == pytest.approx(rates)
    assert rows[-1]["violation_share"] == sum(rate > 0.3 + 1e-9 for rate in rates) / 40
    assert not math.isnan(rows[-1]["ndcg"])


def test_what_cannot_work_is_refused(market):
    model = Ranked(Popularity()).fit(market)
    for wrong in ({"list_length": 0}, {"round_length": 0}):
        with pytest.raises(ConfigError, match="must be at least 1"):
            model.online(**wrong)
    other = with_feedback(market, np.array([0]), np.array([int(market.test.items[0])]))
    with pytest.raises(ModelError, match="popularity was fitted on other data"):
        Ranked(Popularity()).fit(other).online(retrain_on=market)
