"""The demonstration: fcpo and rivals at three levels of the limit, and some steps of a long run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fairhorizon.datasets import Dataset
from fairhorizon.evaluation.long_term import LongRun, LongRunSettings
from fairhorizon.evaluation.short_term import Result, evaluate
from fairhorizon.limits.counts import Exposure
from fairhorizon.limits.language import Limit
from fairhorizon.limits.measured import Verdict, limit_reached, verdicts_of
from fairhorizon.limits.resolved import ResolvedLimit
from fairhorizon.limits.step_limits import PopularityLimit
from fairhorizon.methods import Method, build
from fairhorizon.metrics.fairness import exposure_counts
from fairhorizon.recommenders.base import Recommender
from fairhorizon.recommenders.progress import Listener
from fairhorizon.simulation.feedback import evaluation_scenario
from fairhorizon.studies.long_results import LongTermResult
from fairhorizon.studies.rows import (
    SampleLists,
    SummaryRow,
    sample_items,
    study_row,
    summary_row,
    typical_user,
)
from fairhorizon.studies.step_record import SCHEMA, Row
from fairhorizon.vocabulary import POPULAR, Protocol

LEVELS = (0.85, 0.65, 0.37)
UNLIMITED = "popularity"
LIMITED = ("popularity+quota", "ease:recent+quota", "fcpo")
# the paper's policy, trained for one limit: one level is enough
PAPER, PAPER_LEVEL = ("fcpo:paper", "fcpo:tuned"), 0.65
IN_LONG_RUN = ("popularity", "ease:recent+quota", "ease:recent+control", "fcpo")
# The strictest level with each showing counted as its place: exposure, not the number of showings.
BY_PLACE = Limit.parse(f"popular<={LEVELS[-1]};weights=log")
NO_LIMIT = "no limit"
SAMPLED = 10  # places of the lists of one user
STEPS = 60
ROUND_LENGTH = 20  # items per user that a quota is kept over


@dataclass(frozen=True)
class DemoResult:
    """All that the page of the demonstration shows."""

    rows: tuple[SummaryRow, ...]  # of one seed, in the order of the table
    paper_rounds: int  # of training that the paper's policy had
    found: tuple[str, ...]  # by the fit of fcpo, about the log
    exposure: Mapping[str, NDArray[np.int64]]  # (n_items,) showings in the lists, by method
    training: NDArray[np.int64]  # (n_items,) how often each item is in the training log
    sensitive: NDArray[np.bool_]  # (n_items,) G0
    long_run: LongTermResult
    by_place: SummaryRow  # fcpo under a limit that counts by place
    verdicts: tuple[Verdict, ...]  # on the limits of fcpo, that by place last
    shares_by_rank: Mapping[str, tuple[float, ...]]  # of the group in lists of fcpo, by its limit
    sample: SampleLists  # one user's lists, without a limit and with one
    group: str = POPULAR  # the name of G0

    @property
    def dataset(self) -> str:
        return self.rows[0].dataset

    @property
    def levels(self) -> tuple[float, ...]:
        """The limits, from the loosest to the strictest."""
        return tuple(sorted({row.alpha_prime for row in self.rows} - {1.0}, reverse=True))


class Fits:
    """Models by method, each fitted once: most serve at any level."""

    def __init__(self, dataset: Dataset, *, seed: int, rounds: int, listener: Listener) -> None:
        self.dataset, self.seed, self.rounds, self.listener = dataset, seed, rounds, listener
        self._models: dict[Method, Recommender] = {}

    def serving(self, method: Method) -> Recommender:
        """The fitted model of a method, at its level."""
        trained = method.trained
        if trained not in self._models:
            self.listener.stage(f"{self.dataset.log.name}: fitting {trained.name}")
            self._models[trained] = self._build(trained).fit(
                self.dataset.split, sensitive=self.dataset.sensitive, listener=self.listener
            )
        return self._models[trained].as_served_by(self._build(method))

    def _build(self, method: Method) -> Recommender:
        given = {"rounds": self.rounds} if method.name in PAPER else {}
        return build(method, given, self.seed)


def demonstrate(
    dataset: Dataset,
    *,
    rounds: int,
    seed: int,
    ks: Sequence[int],
    listener: Listener,
    titles: NDArray[Any] | None = None,
) -> DemoResult:
    """Fit every method once, evaluate it at its levels, and run some of them step by step.

    rounds: of training of fcpo:paper and fcpo:tuned.
    titles: (n_items,) of the items, empty where one has none.
    """
    fits = Fits(dataset, seed=seed, rounds=rounds, listener=listener)
    rows, exposure, lists = [], {}, {}
    for method in methods():
        model = fits.serving(method)
        result = evaluate(model, dataset.split, ks=ks, sensitive=dataset.sensitive)
        rows.append(row_of(method, model, result))
        exposure[str(method)] = exposure_counts(result.lists, dataset.log.n_items, max(ks))
        lists[str(method)] = result.lists
    # The same model without a limit, and under a limit that counts the first places most.
    fcpo = Method.parse("fcpo")
    free = fits.serving(fcpo.limited_to(1.0))
    bound = ResolvedLimit(BY_PLACE, dataset.sensitive)
    limited = free.with_limits([bound])
    before, after = (
        evaluate(model, dataset.split, ks=ks, sensitive=dataset.sensitive)
        for model in (free, limited)
    )
    limits = [ResolvedLimit(Limit.popular(level), dataset.sensitive) for level in LEVELS]
    reached = [
        *(limit_reached(one, lists[str(fcpo.limited_to(one.limit.share))]) for one in limits),
        limit_reached(bound, after.lists),
    ]
    strictest = lists[str(fcpo.limited_to(LEVELS[-1]))]
    shown = {NO_LIMIT: before.lists, str(limits[-1]): strictest, str(BY_PLACE): after.lists}
    user = typical_user(before.lists, dataset.sensitive)
    ensemble = fits.serving(fcpo).description()["ensemble"]
    return DemoResult(
        tuple(rows),
        rounds,
        tuple(ensemble.get("summary", ())),
        exposure,
        dataset.split.train.item_counts(),
        dataset.sensitive,
        long_run(fits),
        replace(row_of(fcpo, limited, after), alpha_prime=BY_PLACE.share),
        verdicts_of(reached, [str(one.limit) for one in (*limits, bound)]),
        {name: share_by_rank(own, dataset.sensitive) for name, own in shown.items()},
        SampleLists(
            str(dataset.log.user_ids[user]),
            (NO_LIMIT, str(BY_PLACE)),
            tuple(
                sample_items(own[user, :SAMPLED], dataset.log.item_ids, titles, dataset.sensitive)
                for own in (before.lists, after.lists)
            ),
            dataset.group_name,
        ),
        dataset.group_name,
    )


def share_by_rank(lists: NDArray[np.int64], group: NDArray[np.bool_]) -> tuple[float, ...]:
    """The share of the group at ranks 1, 2, ... of lists (n_users, K); -1 is an empty place."""
    filled = lists >= 0
    # -1 indexes the last item here; `filled` takes it out again.
    inside = (filled & group[lists]).sum(axis=0)
    return tuple((inside / np.maximum(filled.sum(axis=0), 1)).tolist())


def methods() -> list[Method]:
    """In the order of the table: without a limit, then level by level."""
    chosen = [Method.parse(UNLIMITED)]
    for level in LEVELS:
        names = (*LIMITED, *PAPER) if level == PAPER_LEVEL else LIMITED
        chosen += [Method.parse(name).limited_to(level) for name in names]
    return chosen


def row_of(method: Method, model: Recommender, result: Result) -> SummaryRow:
    """The result as a row of one seed."""
    row = study_row(
        result,
        method=str(method),
        settings=model.all_settings(),
        seconds={},
        notes=model.remarks_,
        keeps_limit=model.keeps_limit_,
    )
    return summary_row([row], name=method.name, level=method.level)


def long_run(fits: Fits) -> LongTermResult:
    """All users step by step, at the strictest level; no ranker is fitted again."""
    limit, n_items = LEVELS[-1], fits.dataset.log.n_items
    # In a small catalogue there would soon be nothing left to choose from.
    steps = max(1, min(STEPS, n_items // 4))
    settings = LongRunSettings(steps=steps, alpha_prime=limit, warm_up=0)
    rows: list[Row] = []
    for name in IN_LONG_RUN:
        method = Method.parse(name)
        is_limited = method.capabilities.level_is_share
        model = fits.serving(method.limited_to(limit) if is_limited else method)
        fits.listener.stage(f"{fits.dataset.log.name}: {steps} steps of {name}")
        rows += run_steps(model, name, fits.dataset, settings)
    frame = pl.DataFrame(rows, schema=SCHEMA)
    return LongTermResult(
        frame,
        {},
        limit,
        settings.warm_up,
        group=fits.dataset.group_name,
        settings={
            **settings.stated(),
            "round_length": ROUND_LENGTH,
        },
    )


def run_steps(
    model: Recommender, label: str, dataset: Dataset, settings: LongRunSettings
) -> list[Row]:
    """A row per step, while exposure changes which items are popular."""
    limit = PopularityLimit(settings.alpha_prime, settings.warm_up, settings.labels)
    limits = [limit] if model.capabilities.limits else []
    server = model.online(limits, list_length=settings.list_length, round_length=ROUND_LENGTH)
    users = evaluation_scenario(dataset.split, server.queue_length, Protocol.STANDARD)
    exposure = Exposure(dataset.split.train.item_counts(), lag=settings.lag)
    run = LongRun(server, users, exposure, settings)
    rows = []
    while not run.finished:
        step = run.step() | {"method": label, "seed": model.seed}
        rows.append({name: step.get(name) for name in SCHEMA})
    return rows
