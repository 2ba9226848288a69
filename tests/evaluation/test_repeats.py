"""Items that are shown again some steps later: by hand, by brute force, and with every server."""

import math

import numpy as np
import pytest
import torch
from safetensors.torch import load, save

from fairhorizon.data.splits import split
from fairhorizon.data.synthetic import synthetic
from fairhorizon.errors import ConfigError
from fairhorizon.evaluation.long_term import LongRun, LongRunSettings
from fairhorizon.histories import UserItems
from fairhorizon.limits.counts import Exposure
from fairhorizon.limits.step_limits import PopularityLimit
from fairhorizon.methods import Method, build
from fairhorizon.rankers.popularity import PopularityConfig
from fairhorizon.rankers.ranker import Ranker
from fairhorizon.recommenders.ranked.by_user import OnlineRanked
from fairhorizon.rerank.quota import Quota
from fairhorizon.simulation.feedback import Scenario, evaluation_scenario
from fairhorizon.simulation.response import ResponseModel
from fairhorizon.simulation.simulated import SimulatedUsers, SimulationConfig
from fairhorizon.vocabulary import Protocol

MARKET = synthetic(40, 60, 12, seed=3)
SPLIT = split(MARKET.interactions)
SETTINGS = {
    "mf+foe": {"dim": 4, "max_epochs": 2},
    "lird": {"rounds": 1, "updates": 5, "list_length": 3, "pmf": {"dim": 4, "max_epochs": 2}},
    "fcpo": {
        **{"rounds": 1, "horizon": 4, "history": 3, "list_length": 3},
        **{"warm_start": ["ease", "itemknn"], "actor_hidden": [4, 4], "critic_hidden": [4, 4]},
    },
    "fcpo:paper": {
        **{"rounds": 1, "horizon": 4, "history": 3, "list_length": 3},
        **{"pmf": {"dim": 4, "max_epochs": 2}, "gru_hidden": 4},
    },
}
SERVERS = (
    *("fcpo", "fcpo:paper", "popularity", "ease", "ease+quota", "ease+penalty", "ease+control"),
    *("mf+foe", "lird"),
)


class Told(Ranker[PopularityConfig]):
    """Scores that are given: the same for all users."""

    method = "told"
    config_class = PopularityConfig

    def __init__(self, scores):
        super().__init__()
        self.scores_ = torch.tensor(scores, dtype=torch.float32)

    def _learn(self, split, on_epoch):  # noqa: ARG002
        raise AssertionError("nothing to learn")

    def scores(self, users, queue):  # noqa: ARG002
        return self.scores_.expand(len(users), -1).clone()

    def tensors(self):
        return {}

    def restore(self, tensors):
        pass


class Heedless:
    """Shows given lists, or draws any items, blocked or not."""

    queue_length = 2

    def __init__(self, script=None, n_items=0, list_length=1, seed=0):
        self.script, self.shape = script, (n_items, list_length)
        self.generator = torch.Generator().manual_seed(seed)

    def serve(self, state, exposure):  # noqa: ARG002
        if self.script is not None:
            return torch.tensor(self.script.pop(0))
        n_items, length = self.shape
        return torch.randint(-1, n_items, (len(state.users), length), generator=self.generator)

    def observe(self, lists, outcome, exposure):
        pass

    def update(self):
        pass

    def notes(self):
        return {}

    def tensors(self):
        return {"generator": self.generator.get_state()}

    def restore(self, tensors, state):  # noqa: ARG002
        self.generator.set_state(tensors["generator"])


class Watched(LongRun):
    """Keeps the lists of all steps."""

    def __init__(self, *args):
        super().__init__(*args)
        self.lists = []

    def _serve(self, spent):
        lists, outcome = super()._serve(spent)
        self.lists.append(lists.clone())
        return lists, outcome


def of(rows, n_items):
    """A set of items for every user."""
    starts = torch.tensor([0, *map(len, rows)]).cumsum(0)
    return UserItems(starts, torch.tensor([i for row in rows for i in row]).long(), n_items)


def logged(liked, n_items, history=None):
    excluded = None if history is None else of(history, n_items)
    return Scenario(torch.full((len(liked), 2), n_items), of(liked, n_items), excluded)


def simulated(chances, history=None, **config):
    """Users with these chances (n_users, n_items) to click."""
    chances = torch.tensor(chances)
    response = ResponseModel(
        torch.eye(len(chances)),
        torch.logit(chances).T.contiguous(),
        torch.zeros(len(chances)),
        torch.zeros(chances.shape[1]),
    )
    start = logged([[]] * len(chances), chances.shape[1], history)
    return SimulatedUsers(response, start, SimulationConfig(**config))


def watch(server, users, steps, after, list_length=1, initial=None):
    """The run after its steps, and their rows."""
    settings = LongRunSettings(steps=steps, list_length=list_length, repeat_after=after)
    n_items = users.begin(torch.arange(1))[0].blocked.shape[1]
    counts = np.arange(n_items, 0, -1) if initial is None else initial
    run = Watched(server, users, Exposure(counts), settings)
    return run, [run.step() for _ in range(steps)]


def shown_to(run, user=0):
    return torch.cat([lists[user] for lists in run.lists]).tolist()


@pytest.mark.parametrize(
    ("after", "list_length", "expected"),
    [
        (None, 1, [0, 1, 2, -1, -1, -1]),  # used up
        (1, 1, [0, 0, 0, 0, 0, 0]),
        (2, 1, [0, 1, 0, 1, 0, 1]),
        (3, 1, [0, 1, 2, 0, 1, 2]),
        (4, 1, [0, 1, 2, -1, 0, 1]),
        (1, 2, [0, 1] * 6),
        (2, 2, [0, 1, 2, -1] * 3),
        (6, 2, [0, 1, 2, -1, -1, -1, -1, -1, -1, -1, -1, -1]),
    ],
)
def test_three_items_in_six_steps(after, list_length, expected):
    server = OnlineRanked(Told([3, 2, 1]), list_length=list_length)
    liked = expected[1]
    run, rows = watch(server, logged([[liked]], 3), 6, after, list_length)
    assert shown_to(run) == expected
    position = expected.index(liked) + 1
    assert rows[-1]["ndcg"] == pytest.approx(1 / math.log2(1 + position))
    assert rows[-1]["recall"] == 1
    assert sum(row["reward"] for row in rows) == 1  # the item counts once
    assert run.state.queue.tolist() == [[3, liked]]


def test_history_never_returns():
    """Item 0 is in the history of the first user; a server that shows it anyway earns nothing."""
    run, _ = watch(OnlineRanked(Told([3, 2, 1])), logged([[], []], 3, [[0], []]), 6, 2)
    assert shown_to(run) == [1, 2] * 3
    assert shown_to(run, 1) == [0, 1] * 3
    script = [[[0]], [[1]], [[0]], [[1]], [[0]]]
    run, rows = watch(Heedless(script), simulated([[0.999999] * 3], [[0]]), 5, 1)
    assert [row["reward"] for row in rows] == [0, 1, 0, 1, 0]
    assert run.state.blocked.tolist() == [[True, False, False]]


def test_a_blocked_item_that_is_shown_anyway_returns_later():
    """Shown in steps 0 and 2 of a run with repeats after 3: open again from step 5 on, not 3."""
    script = [[[0]], [[1]], [[0]], [[1]], [[2]], [[0]], [[-1]]]
    users = simulated([[1 - 1e-6] * 3])
    settings = LongRunSettings(repeat_after=3)
    run = LongRun(Heedless(script), users, Exposure(np.array([3, 2, 1])), settings)
    blocked, rewards = [], []
    for _ in range(7):
        blocked.append(run.state.blocked[0].tolist())
        rewards.append(run.step()["reward"])
    assert [row[0] for row in blocked] == [False, True, True, True, True, False, True]
    assert [row[1] for row in blocked] == [False, False, True, True, True, True, False]
    assert rewards == [1, 1, 0, 0, 1, 1, 0]


def test_simulated_users_answer_anew_worked_by_hand():
    """ItemProbabilities 0.9, 0.6, 0.3, repeats after 2: the ideal list is 0, 1, 0, 1."""
    users = simulated([[0.9, 0.6, 0.3]])
    run, rows = watch(Heedless([[[0]], [[2]], [[0]], [[1]]]), users, 4, 2)
    v = [1 / math.log2(1 + rank) for rank in range(1, 5)]
    shown, ideal = [0.9, 0.3, 0.9, 0.6], [0.9, 0.6, 0.9, 0.6]
    for n, row in enumerate(rows, 1):
        assert row["ndcg"] == pytest.approx(np.dot(shown[:n], v[:n]) / np.dot(ideal[:n], v[:n]))
    recalls = [0.9 / 1.8, 1.2 / 1.8, 1.2 / 1.8, 1.0]  # each item once
    assert [row["recall"] for row in rows] == pytest.approx(recalls)
    certain = simulated([[1 - 1e-6] * 3])
    run, rows = watch(Heedless([[[0]], [[2]], [[0]]]), certain, 3, 2)
    assert [row["reward"] for row in rows] == [1, 1, 1]
    assert run.state.queue.tolist() == [[2, 0]]


def test_the_best_lists_have_an_ndcg_of_1():
    """Also where the catalogue is used up before items return, and with lists of 2."""
    chances = [[0.9, 0.6, 0.3]]
    for after, list_length in ((1, 1), (2, 1), (4, 1), (1, 2), (2, 2), (3, 2)):
        server = OnlineRanked(Told([3, 2, 1]), list_length=list_length)
        _, rows = watch(server, simulated(chances), 9, after, list_length)
        assert [row["ndcg"] for row in rows] == pytest.approx([1] * 9), (after, list_length)
    _, rows = watch(OnlineRanked(Told([1, 2, 3])), simulated(chances), 9, 2)
    assert all(row["ndcg"] < 1 for row in rows)


@pytest.mark.parametrize("answers_anew", [False, True], ids=["logged", "simulated"])
@pytest.mark.parametrize("after", [1, 2, 4])
def test_every_row_by_a_loop_over_users_and_slots(after, answers_anew):
    """Of a server that shows anything, blocked or not."""
    rng = np.random.default_rng(5)
    chances = rng.uniform(0.05, 0.95, (5, 9)).astype(np.float32)
    history = [[0], [], [3, 4], [8], []]
    liked = [[1, 2], [5], [0, 8], [], [3, 4, 5]]
    users = simulated(chances, history) if answers_anew else logged(liked, 9, history)
    run, rows = watch(Heedless(None, 9, 2, seed=1), users, 12, after, 2)

    values = chances if answers_anew else np.zeros((5, 9))
    if not answers_anew:
        for user, items in enumerate(liked):
            values[user, items] = 1
    last, dcg, ideal, found = [{} for _ in range(5)], *np.zeros((3, 5))
    open_values = [np.delete(values[user], history[user]) for user in range(5)]
    repeats = 0
    for step, row in enumerate(rows):
        for user in range(5):
            ordered = [*sorted(open_values[user], reverse=True), *[0] * 40]
            known = dict(last[user])
            for slot, item in enumerate(run.lists[step][user].tolist()):
                rank = 2 * step + slot
                allowed = step - known.get(item, -after) >= after and item != -1
                allowed &= item not in history[user] and last[user].get(item) != step
                repeats += allowed and item in known
                counts = allowed and (answers_anew or item not in known)
                dcg[user] += values[user, item] * counts / math.log2(2 + rank)
                found[user] += values[user, item] * (allowed and item not in known)
                last[user][item] = step
                place = rank % (2 * after) if answers_anew else rank
                ideal[user] += ordered[place] / math.log2(2 + rank)
        some = ideal > 0
        assert row["ndcg"] == pytest.approx(np.mean(dcg[some] / ideal[some]), rel=1e-5)
        totals = np.array([part.sum() for part in open_values])
        assert row["recall"] == pytest.approx(np.mean(found[some] / totals[some]), rel=1e-5)
    assert repeats > 10


def test_a_round_takes_items_that_return_at_once():
    """Twenty items, popular is item 0, two of four items of a round may be popular.

    At the start of the second round item 1 is blocked; it is shown as soon as it returns, though
    more than the 8 candidates of a round were open without it.
    """
    server = OnlineRanked(Told(range(20, 0, -1)), Quota(share=0.5), round_length=4)
    settings = LongRunSettings(steps=12, repeat_after=2)
    exposure = Exposure(np.arange(20, 0, -1), lambda counts: np.arange(len(counts)) == 0)
    run = Watched(server, logged([[]], 20), exposure, settings)
    rows = [run.step() for _ in range(12)]
    assert shown_to(run) == [0, 1] * 6
    assert rows[-1]["popularity_rate"] == 0.5
    strict = OnlineRanked(Told(range(20, 0, -1)), Quota(share=0.25), round_length=4)
    run = Watched(strict, logged([[]], 20), exposure, settings)
    for _ in range(12):
        run.step()
    assert shown_to(run) == [0, 1, 2, 1] * 3


@pytest.fixture(scope="module", params=SERVERS)
def model(request):
    """Fitted once; lists of 3 where it is trained for a length."""
    method = Method.parse(request.param)
    return build(method, SETTINGS.get(request.param, {}), 0).fit(SPLIT)


def served(model, after, *, clicks, protocol=Protocol.STANDARD):
    """A run of 18 steps with lists of 3, rounds of 12 items and a refit after each."""
    limits = [PopularityLimit(0.4, warm_up=4)] if model.capabilities.limits else []
    server = model.online(limits, list_length=3, round_length=12, retrain_on=SPLIT, seed=1)
    history = server.queue_length
    if clicks:
        users = SimulatedUsers.from_split(MARKET, SPLIT, history, protocol, seed=2)
    else:
        users = evaluation_scenario(SPLIT, history, protocol)
    settings = LongRunSettings(list_length=3, repeat_after=after, update_every=3, warm_up=4)
    return Watched(server, users, Exposure(SPLIT.train.item_counts()), settings)


@pytest.mark.slow
@pytest.mark.parametrize("clicks", [False, True], ids=["logged", "simulated"])
@pytest.mark.parametrize("after", [1, 5])
def test_no_server_shows_an_item_twice_within_the_steps(model, after, clicks):
    run = served(model, after, clicks=clicks)
    never = run.state.blocked.clone()
    rows = [run.step() for _ in range(18)]
    lists = torch.stack(run.lists)  # (18, b, 3)
    assert (lists >= 0).all()
    assert not never.gather(1, lists.transpose(0, 1).flatten(1)).any()
    gaps = {after: 0}
    for user in range(lists.shape[1]):
        last = {}
        for step in range(18):
            items = lists[step, user].tolist()
            assert len({*items}) == 3
            for item in items:
                gap = step - last.get(item, -100)
                assert gap >= after
                gaps[gap] = gaps.get(gap, 0) + 1
                last[item] = step
    assert gaps[after] > 40  # items are shown again as soon as they may be
    assert all(0 <= row["ndcg"] <= 1 + 1e-9 and 0 <= row["recall"] <= 1 + 1e-9 for row in rows)
    if not clicks:  # a user's test items are liked once
        totals = torch.from_numpy(np.bincount(SPLIT.test.users, minlength=40))
        assert sum(row["reward"] for row in rows) * 40 <= totals.sum()


@pytest.mark.slow
@pytest.mark.parametrize("taken", [3, 9])
def test_a_stored_run_with_repeats_goes_on_as_if_nothing_had_happened(model, taken):
    whole = served(model, 5, clicks=True)
    rows = [whole.step() for _ in range(18)]
    stopped = served(model, 5, clicks=True)
    for _ in range(taken):
        stopped.step()
    resumed = served(model, 5, clicks=True)
    resumed.step()  # nothing of it stays
    resumed.restore(load(save(stopped.tensors())))
    again = [resumed.step() for _ in range(18 - taken)]
    assert torch.stack(resumed.lists[1:]).equal(torch.stack(whole.lists[taken:]))
    for row, other in zip(again, rows[taken:], strict=True):
        assert {**row, "seconds": 0} == pytest.approx({**other, "seconds": 0}, rel=0, nan_ok=True)


def test_a_run_is_stored_at_its_beginning_too():
    users, exposure = logged([[0]], 4), Exposure(np.array([1, 1, 1, 1]))
    settings = LongRunSettings(repeat_after=2)
    run = LongRun(OnlineRanked(Told([4, 3, 2, 1])), users, exposure, settings)
    run.restore(load(save(run.tensors())))
    assert [lists.shape for lists in run.state.returning] == [(1, 0)] * 2
    run.step()
    run.restore(load(save(run.tensors())))
    assert [lists.tolist() for lists in run.state.returning] == [[[]], [[0]]]
    assert run.state.blocked.tolist() == [[True, False, False, False]]


def test_the_setting():
    assert "repeat_after" not in LongRunSettings().stated()  # runs of before keep their keys
    assert LongRunSettings(repeat_after=3).stated()["repeat_after"] == 3
    assert LongRunSettings(steps=10).most_showings == 1
    showings = [LongRunSettings(steps=10, repeat_after=n).most_showings for n in (1, 3, 5, 10, 11)]
    assert showings == [10, 4, 2, 1, 1]
    with pytest.raises(ConfigError, match="repeat_after=0: give at least 1"):
        LongRunSettings(repeat_after=0)
