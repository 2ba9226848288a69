"""The demonstration: every row is of its method at its level."""

import pytest

from fairhorizon.datasets import Dataset, DataSpec
from fairhorizon.evaluation.short_term import evaluate
from fairhorizon.methods import Method, build
from fairhorizon.recommenders.progress import Listener
from fairhorizon.studies.demo import LEVELS, PAPER_LEVEL, DemoResult, demonstrate

KS = (5, 10)


class Stages(Listener):
    def __init__(self) -> None:
        self.texts: list[str] = []

    def stage(self, text: str, metric: str = "NDCG") -> None:  # noqa: ARG002
        self.texts.append(text)


STAGES = Stages()


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return DataSpec(source="synthetic:users=60,items=80,interactions_per_user=20").open()


@pytest.fixture(scope="module")
def result(dataset: Dataset) -> DemoResult:
    return demonstrate(dataset, rounds=2, seed=1, ks=KS, listener=STAGES)


@pytest.mark.slow
def test_every_method_is_fitted_once(result: DemoResult) -> None:
    assert len(result.rows) == 12
    fits = [text.split("fitting ")[1] for text in STAGES.texts if ": fitting " in text]
    of_demo = [name for name in fits if "," not in name]
    assert of_demo == ["popularity", "ease:recent", "fcpo:fast", "fcpo:paper", "fcpo:tuned"]


@pytest.mark.slow
def test_rows_are_of_their_method_at_their_level(dataset: Dataset, result: DemoResult) -> None:
    limited = ("popularity+quota", "ease:recent+quota", "fcpo")
    expected = {("popularity", 1.0), ("fcpo:paper", PAPER_LEVEL), ("fcpo:tuned", PAPER_LEVEL)}
    expected |= {(name, level) for name in limited for level in LEVELS}
    assert {(row.name, row.alpha_prime) for row in result.rows} == expected
    assert result.levels == LEVELS
    for row in result.rows:
        assert row.level == (None if row.name == "popularity" else row.alpha_prime)
        assert row.seeds == (1,)
    for level in LEVELS:
        method = Method.parse(f"ease:recent+quota@{level}")
        model = build(method, {}, 1).fit(dataset.split, sensitive=dataset.sensitive)
        own = evaluate(model, dataset.split, ks=KS, sensitive=dataset.sensitive)
        (row,) = (row for row in result.rows if row.method == str(method))
        assert {name: spread.mean for name, spread in row.metrics.items()} == own.metrics


def test_fcpo_and_quotas_keep_their_limits(result: DemoResult) -> None:
    for row in result.rows:
        share = row.metrics["popularity_rate@10"].mean
        assert share is not None
        if row.name not in ("popularity", "fcpo:paper"):
            assert share <= row.alpha_prime + 1e-9
        counts = result.exposure[row.method]
        assert counts.sum() == 60 * 10
        assert counts[result.sensitive].sum() / counts.sum() == pytest.approx(share)


def test_rounds_are_those_of_the_policy_of_the_paper(result: DemoResult) -> None:
    (paper,) = (row for row in result.rows if row.name == "fcpo:paper")
    (first, *_) = (row for row in result.rows if row.name == "fcpo")
    assert (paper.settings["rounds"], first.settings["rounds"]) == (2, 30)
    assert result.paper_rounds == 2


def test_the_long_run_is_at_the_strictest_limit(result: DemoResult) -> None:
    run = result.long_run
    assert (run.alpha_prime, run.warm_up) == (LEVELS[-1], 0)
    last = run.steps.group_by("method", maintain_order=True).last()
    assert last["method"].to_list() == [
        "popularity",
        "ease:recent+quota",
        "ease:recent+control",
        "fcpo",
    ]
    assert last["step"].unique().to_list() == [20]  # a quarter of the catalogue
    over = dict(zip(last["method"], last["violation_share"], strict=True))
    assert (over["popularity"], over["ease:recent+control"], over["fcpo"]) == (1.0, 0.0, 0.0)
    beyond = dict(zip(last["method"], last["largest_overshoot"], strict=True))
    # its first step shows popular items only, where 37 % are allowed
    assert beyond["popularity"] == pytest.approx(0.63)
    of_fcpo = run.steps.filter(method="fcpo")
    assert of_fcpo["popularity_rate"].max() <= LEVELS[-1]  # by the groups when it was shown
    first = run.steps.filter(step=1)
    rates = dict(zip(first["method"], first["popularity_rate"], strict=True))
    assert rates["fcpo"] == 22 / 60  # of 60 users at most 37 % are shown a popular item
    assert rates["popularity"] == 1.0


def test_what_the_fit_found_is_kept(result: DemoResult) -> None:
    assert [line.partition(":")[0] for line in result.found] == [
        "log",
        "rankers, by weight",
        "NDCG@20 of what came later in training, and of validation",
    ]
    assert set(result.found) <= set(STAGES.texts)
