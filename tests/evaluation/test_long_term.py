"""The long run against the metrics of the whole list so far, by hand, and stored in between."""

import math

import numpy as np
import pytest
import torch
from safetensors.torch import load, save

from fairhorizon.errors import ConfigError, ModelError
from fairhorizon.evaluation.long_term import RATES, LongRun, LongRunSettings
from fairhorizon.evaluation.short_term import relevance
from fairhorizon.histories import TableSets, UserItems
from fairhorizon.limits.counts import Exposure
from fairhorizon.limits.groups import popular_group
from fairhorizon.metrics.accuracy import hit_matrix, mean_over_users, ndcg, recall
from fairhorizon.metrics.fairness import coverage, exposure_counts, gini, popularity_rate
from fairhorizon.simulation.dynamics import Feedback, State
from fairhorizon.simulation.feedback import Scenario, evaluation_scenario
from fairhorizon.vocabulary import Labels, Protocol

COLUMNS = [
    "step",
    "ndcg",
    "recall",
    "likes",
    "showings",
    "here",
    "gini",
    "limited_rate",
    "popularity_rate",
    "popularity_rate_initial",
    "popularity_rate_lagged",
    "popularity_rate_retrospective",
    "step_popularity_rate",
    "step_popularity_rate_initial",
    "lorenz_share",
    "violation",
    "violation_share",
    "largest_overshoot",
    "churn",
    "churn_share",
    "reward",
    "coverage",
    "seconds",
]


class Careless:
    """Draws any item, shown before or not, now and then none; a note counts its updates."""

    queue_length = 2

    def __init__(self, n_items, list_length=1, seed=0):
        self.n_items, self.list_length = n_items, list_length
        self.generator = torch.Generator().manual_seed(seed)
        self.updates, self.served, self.labels = 0, [], []

    def serve(self, state, exposure):
        shape = (len(state.users), self.list_length)
        lists = torch.randint(-1, self.n_items, shape, generator=self.generator)
        self.served.append(lists.numpy())
        self.labels.append(exposure.sensitive.numpy().copy())
        return lists

    def observe(self, lists, outcome, exposure):
        pass

    def update(self):
        self.updates += 1

    def notes(self):
        return {"updates": float(self.updates)}

    def tensors(self):
        return {"generator": self.generator.get_state(), "updates": torch.tensor(self.updates)}

    def restore(self, tensors, state):  # noqa: ARG002
        self.generator.set_state(tensors["generator"])
        self.updates = int(tensors["updates"])


class Boastful(Careless):
    """Would like to write its own record."""

    def notes(self):
        return {"gini": 0.0}


class Scripted(Careless):
    """Shows given lists: one (b, K) per step."""

    def __init__(self, steps):
        super().__init__(0)
        self.steps = [torch.tensor(lists) for lists in steps]

    def serve(self, state, exposure):  # noqa: ARG002
        return self.steps.pop(0)


class Drifting(Feedback):
    """Users with one probability to like any item, which changes after every step."""

    def __init__(self, chances, speed):
        self.chances, self.speed, self.n_users = chances, speed, len(chances)

    def begin(self, users, device=None):  # noqa: ARG002
        blocked = torch.zeros(self.chances[users].shape, dtype=torch.bool)
        queue = torch.full((len(users), 2), self.chances.shape[1])
        return State(users, queue, TableSets(blocked)), self

    def answer(self, lists):
        return lists >= 0

    def relevance(self, lists):
        return self.chances.gather(1, lists.clamp(min=0)) * (lists >= 0)

    def best(self, first, last):
        ordered = self.chances.sort(dim=1, descending=True).values[:, first:last]
        return torch.nn.functional.pad(ordered, (0, last - first - ordered.shape[1]))

    def total(self):
        return self.chances.sum(1)

    def pass_time(self):
        self.chances = self.chances.roll(1, dims=1) * self.speed

    def tensors(self):
        return {"chances": self.chances}

    def restore(self, tensors):
        self.chances = tensors["chances"]


def logged(liked, n_items):
    """Users without a history who like these items."""
    counts = torch.tensor([0, *map(len, liked)])
    items = torch.tensor([item for some in liked for item in some], dtype=torch.int64)
    positive = UserItems(counts.cumsum(0), items, n_items)
    return Scenario(torch.full((len(liked), 2), n_items), positive, None)


def play(run, steps):
    return [run.step() for _ in range(steps)]


def same(rows, others):
    """But for how long they took."""
    for row, other in zip(rows, others, strict=True):
        assert list(row) == list(other)
        for name in set(row) - {"seconds"}:
            assert row[name] == other[name] or (math.isnan(row[name]) and math.isnan(other[name]))


@pytest.mark.parametrize("protocol", list(Protocol))
@pytest.mark.parametrize("list_length", [1, 3])
@pytest.mark.parametrize("limited", list(Labels))
def test_every_row_is_that_of_the_whole_list_so_far(market, protocol, list_length, limited):
    n_items = market.train.n_items
    server = Careless(n_items, list_length, seed=4)
    exposure = Exposure(market.train.item_counts(), lag=3)
    settings = LongRunSettings(
        list_length=list_length, relabel_every=4, warm_up=6, labels=limited, alpha_prime=0.19
    )
    run = LongRun(server, evaluation_scenario(market, 2, protocol), exposure, settings)
    rows = play(run, 20)

    relevant = relevance(market.test)
    n_relevant = np.diff(relevant.indptr)
    assert (n_relevant == 0).any()  # users that count for nothing
    initial, above = popular_group(market.train.item_counts()), []
    labels, n_sensitive, n_lagged = initial, 0, 0
    labels_of_steps, limit = [], 0.19
    for step, row in enumerate(rows, 1):
        lists = np.concatenate(server.served[:step], axis=1)
        k, this = lists.shape[1], server.served[step - 1]
        assert row["step"] == step
        hits = hit_matrix(lists, relevant)
        for user, items in enumerate(lists):  # what is shown again earns nothing
            _, first = np.unique(items, return_index=True)
            hits[user, np.setdiff1d(np.arange(k), first)] = False
        expected = {
            "ndcg": mean_over_users(ndcg(hits, n_relevant, k)),
            "recall": mean_over_users(recall(hits, n_relevant, k)),
            "reward": hits[:, -list_length:].sum(1).mean(),
        }
        counts = exposure_counts(lists, n_items, k)
        assert np.array_equal(server.labels[step - 1], labels)
        n_sensitive += labels[this[this >= 0]].sum()
        labels_of_steps.append(labels)
        lagged = labels_of_steps[-4] if step > 3 else initial
        n_lagged += lagged[this[this >= 0]].sum()
        total = market.train.item_counts() + counts
        now = popular_group(total) if step % 4 == 0 else labels
        rates = {
            Labels.FIRST: popularity_rate(lists, initial, k),
            Labels.MOMENT: n_sensitive / counts.sum(),
            Labels.LAGGED: n_lagged / counts.sum(),
            Labels.RETROSPECTIVE: counts[now].sum() / counts.sum(),
        }
        rate = rates[limited]
        if step > 6:
            above.append(rate - limit)
        expected |= {
            "gini": gini(counts),
            "coverage": coverage(counts),
            "limited_rate": rate,
            "popularity_rate": rates[Labels.MOMENT],
            "popularity_rate_initial": rates[Labels.FIRST],
            "popularity_rate_lagged": rates[Labels.LAGGED],
            "popularity_rate_retrospective": rates[Labels.RETROSPECTIVE],
            "lorenz_share": np.sort(counts)[::-1][: initial.sum()].sum() / counts.sum(),
            "step_popularity_rate": popularity_rate(this, labels, list_length),
            "step_popularity_rate_initial": popularity_rate(this, initial, list_length),
            "violation": max(0, rate - limit),
            "violation_share": np.mean(np.array(above) > 0) if above else math.nan,
            "largest_overshoot": max([0, *above]),
            "churn": 0,
            "churn_share": 0,
            "updates": step // 10,
        }
        if step % 4 == 0:
            changed = labels != now
            labels = now
            expected["churn"] = changed.sum()
            expected["churn_share"] = total[changed].sum() / total.sum()
        for name, value in expected.items():
            assert row[name] == pytest.approx(value, rel=1e-12, nan_ok=True), name
    assert len({tuple(row[name] for name in RATES.values()) for row in rows[8:]}) == 12
    assert any(gap > 0 for gap in above)
    assert sum(row["churn"] for row in rows) > 0
    assert sum(row["reward"] for row in rows) > 0
    assert [*COLUMNS, "updates"] == list(rows[0])


def test_worked_by_hand():
    """Items 0 to 3 with counts 4, 3, 2, 1; the popular group has one item, first item 0.

    User 0 likes items 1 and 3, user 1 item 0, user 2 nothing. Step 1 shows item 1 to all: counts
    4, 6, 2, 1 put item 1 in the place of item 0. Step 2 shows item 1 again, item 0, and nothing.
    """
    users = logged([[1, 3], [0], []], 4)

    def begin(**labels):
        history, share = np.array([4, 3, 2, 1]), 0.25
        exposure = Exposure(history, lambda counts: popular_group(counts, share), lag=1)
        server = Scripted([[[1], [1], [1]], [[1], [0], [-1]], [[3], [2], [2]]])
        settings = LongRunSettings(alpha_prime=0.15, warm_up=1, **labels)
        return LongRun(server, users, exposure, settings)

    run = begin(labels="moment")
    first, second, third = play(run, 3)

    assert first["ndcg"] == pytest.approx((1 + 0) / 2)
    assert first["recall"] == pytest.approx((1 / 2 + 0) / 2)
    assert first["reward"] == pytest.approx(1 / 3)
    assert (first["popularity_rate"], first["popularity_rate_initial"]) == (0, 0)
    assert (first["churn"], first["churn_share"]) == (2, 10 / 13)
    assert first["gini"] == pytest.approx(3 / 4)
    assert first["coverage"] == 1 / 4
    assert math.isnan(first["violation_share"])

    v2, v3 = 1 / math.log2(3), 1 / 2
    assert second["ndcg"] == pytest.approx((1 / (1 + v2) + v2 / 1) / 2)  # item 1 counts once
    assert second["recall"] == pytest.approx((1 / 2 + 1) / 2)
    assert second["step_popularity_rate"] == 1 / 2  # item 1, not item 0
    assert second["step_popularity_rate_initial"] == 1 / 2  # item 0, not item 1
    assert second["popularity_rate"] == 1 / 5
    assert second["violation"] == pytest.approx(0.05)
    assert (second["violation_share"], second["churn"]) == (1, 0)

    assert third["ndcg"] == pytest.approx(((1 + v3) / (1 + v2) + v2) / 2)
    assert third["recall"] == 1
    assert third["popularity_rate"] == 1 / 8
    assert (third["violation"], third["violation_share"]) == (0, 1 / 2)
    assert third["largest_overshoot"] == pytest.approx(0.05)
    assert run.exposure.shown.tolist() == [1, 4, 2, 1]
    assert run.state.queue.tolist() == [[1, 3], [4, 0], [4, 4]]

    # Item 1 is the popular one from step 1 on, with all that was shown of it.
    rows = play(begin(), 3)
    assert [row["limited_rate"] for row in rows] == [1, 4 / 5, 4 / 8]
    assert [row["popularity_rate_retrospective"] for row in rows] == [1, 4 / 5, 4 / 8]
    assert [row["lorenz_share"] for row in rows] == [1, 4 / 5, 4 / 8]
    assert [row["popularity_rate_lagged"] for row in rows] == [0, 1 / 5, 1 / 8]  # item 0 in step 2
    assert [row["popularity_rate"] for row in rows] == [0, 1 / 5, 1 / 8]  # item 1 in step 2
    assert [row["violation"] for row in rows] == pytest.approx([0.85, 0.65, 0.35])
    assert [row["violation_share"] for row in rows[1:]] == [1, 1]
    assert rows[2]["largest_overshoot"] == pytest.approx(0.65)


def test_chances_that_drift_are_counted_as_they_were_when_shown():
    """A loop over users, steps and slots, with the chances of each moment."""
    generator = torch.Generator().manual_seed(1)
    chances = torch.rand(5, 7, generator=generator, dtype=torch.float64)
    server = Careless(7, 2, seed=2)
    settings = LongRunSettings(list_length=2)
    run = LongRun(server, Drifting(chances, 0.9), Exposure(np.arange(7)), settings)
    rows = play(run, 5)

    now, seen = chances.numpy(), [set() for _ in range(5)]
    dcg, ideal, found = np.zeros((3, 5))
    for step, row in enumerate(rows):
        for user in range(5):
            ordered = [*np.sort(now[user])[::-1], *[0] * 10]
            for slot, item in enumerate(server.served[step][user].tolist()):
                rank = 2 * step + slot + 1
                value = now[user, item] if item >= 0 and item not in seen[user] else 0
                seen[user].add(item)
                dcg[user] += value / math.log2(1 + rank)
                ideal[user] += ordered[rank - 1] / math.log2(1 + rank)
                found[user] += value
        assert row["ndcg"] == pytest.approx(np.mean(dcg / ideal))
        assert row["recall"] == pytest.approx(np.mean(found / now.sum(1)))
        now = np.roll(now, 1, axis=1) * 0.9


def test_labels_and_learning_keep_their_pace(market):
    server, users = Careless(80), evaluation_scenario(market, 2, Protocol.PAPER)
    settings = LongRunSettings(relabel_every=3, update_every=4)
    rows = play(LongRun(server, users, Exposure(np.zeros(80)), settings), 13)
    moments = [i for i in range(1, 13) if (server.labels[i] != server.labels[i - 1]).any()]
    assert moments == [3, 6, 9, 12]  # steps after which a server sees other labels
    assert [row["step"] for row in rows if row["churn"]] == moments
    assert [row["updates"] for row in rows] == [0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3]


@pytest.mark.parametrize("taken", [0, 1, 7])
@pytest.mark.parametrize("drifting", [False, True], ids=["logged", "drifting"])
def test_a_stored_run_goes_on_as_if_nothing_had_happened(market, taken, drifting):
    n_items = market.train.n_items

    def begin(seed):
        chances = torch.rand(6, n_items, generator=torch.Generator().manual_seed(8))
        users = Drifting(chances.double(), 0.95)
        if not drifting:
            users = evaluation_scenario(market, 2, Protocol.STANDARD)
        exposure = Exposure(market.train.item_counts())
        settings = LongRunSettings(
            list_length=2,
            relabel_every=2,
            update_every=3,
            warm_up=2,
            alpha_prime=0.2,
            labels="moment",
        )
        return LongRun(Careless(n_items, 2, seed), users, exposure, settings)

    whole = begin(seed=3)
    rows = play(whole, 12)
    assert 0 < rows[-1]["violation_share"] < 1
    stopped = begin(seed=3)
    same(play(stopped, taken), rows[:taken])
    stored = load(save(stopped.tensors()))
    resumed = begin(seed=99)
    play(resumed, 2)  # none of it stays
    resumed.restore(stored)
    assert resumed.steps == taken
    same(play(resumed, 12 - taken), rows[taken:])
    assert np.array_equal(resumed.exposure.counts, whole.exposure.counts)
    assert resumed.state.blocked.equal(whole.state.blocked)


def test_a_stored_run_remembers_who_left():
    """Two users; in the second step of the first script one of them has nothing to be shown."""

    def begin(script):
        return LongRun(Scripted(script), logged([[0], [0]], 3), Exposure(np.array([1, 1, 1])))

    for script, lasting in (([[[0], [1]], [[1], [-1]]], 0), ([[[0], [1]], [[1], [2]]], 2)):
        run, resumed = begin(script), begin(script)
        play(run, 2)
        resumed.restore(load(save(run.tensors())))
        for exposure in (run.exposure, resumed.exposure):
            assert exposure.lasting(np.array([2])).tolist() == [lasting]
            assert exposure.lasting(np.array([1])).tolist() == [0]
    partial = run.tensors()
    del partial["exposure.at_place"]
    with pytest.raises(ModelError, match=r"has no at_place: it cannot be continued .*anew"):
        begin(script).restore(partial)


def test_what_is_stored_does_not_change_with_the_run(market):
    users, exposure = evaluation_scenario(market, 2, Protocol.STANDARD), Exposure(np.arange(80))
    run = LongRun(Careless(80), users, exposure)
    stored = run.tensors()
    copies = {name: tensor.clone() for name, tensor in stored.items()}
    play(run, 3)
    assert all(tensor.equal(copies[name]) for name, tensor in stored.items())
    assert all(tensor.is_contiguous() for tensor in run.tensors().values())


def test_a_run_within_its_warm_up_is_never_judged():
    users = logged([[0]], 3)
    server = Scripted([[[0]], [[1]]])
    settings = LongRunSettings(steps=2, warm_up=2, alpha_prime=0)
    exposure = Exposure(np.array([1, 1, 1]), lambda counts: counts >= 0)  # all are in the group
    run = LongRun(server, users, exposure, settings)
    rows = play(run, 2)
    assert run.finished
    assert [row["violation"] for row in rows] == [1, 1]
    assert all(math.isnan(row["violation_share"]) for row in rows)
    assert [row["largest_overshoot"] for row in rows] == [0, 0]


def test_a_run_that_shows_nothing_has_no_rates():
    run = LongRun(Scripted([[[-1], [-1]]]), logged([[0], []], 3), Exposure(np.array([1, 1, 1])))
    row = run.step()
    assert (row["ndcg"], row["recall"], row["gini"], row["coverage"]) == (0, 0, 0, 0)
    assert math.isnan(row["popularity_rate"])
    assert math.isnan(row["step_popularity_rate"])
    assert row["violation"] == 0
    without_likes = LongRun(
        Scripted([[[0], [1]]]), logged([[], []], 3), Exposure(np.array([1, 1, 1]))
    )
    assert math.isnan(without_likes.step()["ndcg"])


def test_what_does_not_fit_together_is_refused(market):
    exposure = Exposure(market.train.item_counts())
    with pytest.raises(ConfigError, match=r"reads 2 items of a user's history.* has 1"):
        LongRun(Careless(80), evaluation_scenario(market, 1, Protocol.PAPER), exposure)
    run = LongRun(
        Careless(80, list_length=2), evaluation_scenario(market, 2, Protocol.PAPER), exposure
    )
    with pytest.raises(ConfigError, match=r"lists of shape \(60, 2\), the run needs \(60, 1\)"):
        run.step()
    boastful = LongRun(Boastful(80), evaluation_scenario(market, 2, Protocol.PAPER), exposure)
    with pytest.raises(ConfigError, match="a note on 'gini', which the record has already"):
        boastful.step()
    fewer = LongRun(Careless(80), logged([[0]], 80), exposure)
    with pytest.raises(ModelError, match=r"queue of shape \(60, 2\), this one \(1, 2\)"):
        fewer.restore(run.tensors())
    for wrong in ({"steps": 0}, {"alpha_prime": 1.1}, {"warm_up": -1}, {"relabel": 1}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            LongRunSettings(**wrong)
