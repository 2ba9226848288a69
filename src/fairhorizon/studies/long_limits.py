"""What the methods of long runs made of limits: a row per limit and method, over seeds."""

import json
from collections.abc import Mapping, Sequence

import polars as pl

from fairhorizon.limits.bound import BoundLimit
from fairhorizon.limits.language import Limit
from fairhorizon.metrics.shares import exceeds
from fairhorizon.studies.rows import LimitRow
from fairhorizon.vocabulary import Scope


def long_limits(
    steps: pl.DataFrame, warm_up: int, main: Limit, further: Sequence[BoundLimit]
) -> list[LimitRow]:
    """The limit on the group of the data, then the others, method by method.

    Reached is what all showings of the run came to, violations are steps after the warm-up, the
    price is that of the last step. Lists are not kept, so nothing is known by place.
    """
    runs: dict[str, dict[int, pl.DataFrame]] = {}
    for run in steps.sort("step", maintain_order=True).partition_by(
        "method", "seed", maintain_order=True
    ):
        runs.setdefault(run["method"][0], {})[run["seed"][0]] = run
    rows = [_over_seeds(method, main, own, warm_up, by_notes=False) for method, own in runs.items()]
    for one in further:
        rows += [
            _over_seeds(method, one.limit, own, warm_up, by_notes=True)
            for method, own in runs.items()
        ]
    return [row for row in rows if row is not None]


def _over_seeds(
    method: str, limit: Limit, runs: Mapping[int, pl.DataFrame], warm_up: int, *, by_notes: bool
) -> LimitRow | None:
    """None where some run has not recorded the limit."""
    found = []
    for seed, run in runs.items():
        excesses, price = _noted(run, limit) if by_notes else _recorded(run, limit)
        if not excesses:
            return None
        after = [excess for step, excess in excesses.items() if step > warm_up]
        last = excesses[max(excesses)]
        broken = sum(exceeds(excess, 0.0) for excess in after)
        sign = -1 if limit.is_floor else 1  # a floor is exceeded downwards
        found.append(
            LimitRow(
                method=method,
                seeds=(seed,),
                limit=str(limit),
                asked=limit.share,
                is_floor=limit.is_floor,
                # of a limit on lists the excess is a share of lists
                reached=limit.share + sign * last if limit.scope is Scope.ALL else None,
                kept=not (broken if after else exceeds(last, 0.0)),
                n_lists=0,
                violations=broken,
                price=price,
            )
        )
    return LimitRow.from_seeds(method, list(runs), found)


def _recorded(run: pl.DataFrame, limit: Limit) -> tuple[dict[int, float], float | None]:
    """By step, how far the share of the group of the data is above the limit; the last price."""
    rates = dict(run.select("step", "limited_rate").drop_nulls().iter_rows())
    return {step: rate - limit.share for step, rate in rates.items()}, run["price"][-1]


def _noted(run: pl.DataFrame, limit: Limit) -> tuple[dict[int, float], float | None]:
    """The same of another limit, which the notes of every step have."""
    noted = {
        step: json.loads(notes)
        for step, notes in run.select("step", "notes").drop_nulls().iter_rows()
    }
    name = f"excess of {limit}"
    excesses = {step: notes[name] for step, notes in noted.items() if notes.get(name) is not None}
    last = noted[max(noted)] if noted else {}
    return excesses, last.get(f"price of {limit}")
