"""What --limit and --alpha-prime mean for a fit, for a study and for lists of a run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fairhorizon.cli.config import POPULAR_SHARE
from fairhorizon.cli.options import LIMIT
from fairhorizon.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fairhorizon.data.splits import Split
    from fairhorizon.datasets import Dataset, DataSpec
    from fairhorizon.limits.language import Limit
    from fairhorizon.limits.measured import LimitReached
    from fairhorizon.limits.resolved import ResolvedLimit
    from fairhorizon.methods import Method
    from fairhorizon.model.folder import ModelFolder
    from fairhorizon.recommenders.base import Recommender
    from fairhorizon.studies.study import Study


@dataclass(frozen=True)
class GivenLimits:
    """Limits, and the table that has the columns of their groups."""

    limits: "tuple[Limit, ...]" = ()
    item_table: str | None = None  # None: the log has them

    def texts(self) -> tuple[str, ...]:
        return tuple(map(str, self.limits))

    def bound(
        self, data: "DataSpec", split: "Split", cache_dir: Path | None, popular_share: float
    ) -> "list[ResolvedLimit]":
        """On the items of the data."""
        from fairhorizon.datasets import bound_limits

        return bound_limits(
            self.limits, data, cache_dir, self.item_table, split=split, popular_share=popular_share
        )

    def on_study(self, study: "Study") -> "Study":
        """The study with these limits on its items."""
        bound = self.bound(study.data, study.dataset().split, study.cache_dir, POPULAR_SHARE)
        return replace(study, limits=tuple(bound))

    def check(
        self, model: "Recommender", data: "DataSpec", dataset: "Dataset", cache_dir: Path | None
    ) -> None:
        """Refuse limits that the data does not know, that the model, before its fit, cannot keep,
        or that no lists can."""
        from fairhorizon.allocation.conflicts import check_before_fit
        from fairhorizon.limits.supported import check_supported
        from fairhorizon.model.cold_start import Catalogue
        from fairhorizon.model.serving import resolve_for

        bound = self.bound(data, dataset.split, cache_dir, model.popular_share)
        check_supported(model.method, model.supported_limits, bound, dataset.sensitive)
        if data.cut == "none" and self.item_table is not None:
            # a model of the whole log also serves items that only the table has
            table = data.table_of_items(self.item_table)
            catalogue = Catalogue.from_log(dataset.log, table, area_km=data.area_km)
            bound = resolve_for(self.limits, catalogue, model.popular_share)
        check_before_fit(bound)


def parse(texts: Sequence[str] | None) -> "tuple[Limit, ...]":
    """What was typed."""
    from fairhorizon.limits.language import Limit, LimitError

    try:
        return tuple(Limit.parse(text) for text in texts or ())
    except LimitError as error:
        raise typer.BadParameter(str(error), param_hint=LIMIT) from None


def apart(
    data: "DataSpec", texts: Sequence[str] | None, resumed: "ModelFolder | None" = None
) -> "tuple[DataSpec, GivenLimits]":
    """The data and the limits; an item table that is for the limits alone is none of the data.

    Of a fit on the whole log the table also has further items to serve.

    resumed: a run whose limits count where none are given.
    """
    if not texts and resumed is not None and resumed.card_file.exists():
        return data, GivenLimits(resumed.limits(), resumed.item_table())
    limits, table = parse(texts), data.item_table
    by_column = any(not limit.group.reserved for limit in limits)
    used = by_column or data.cut == "none"
    if used and data.group_column is None:
        data = data.model_copy(update={"item_table": None})
    return data, GivenLimits(limits, table if used else None)


def level_of(
    limits: "Sequence[Limit]", alpha_prime: float | None, data: "DataSpec"
) -> float | None:
    """--alpha-prime, or the share of the one plain limit on the group that it is about."""
    own = own_limit(data, 1.0)
    levels = [limit.share for limit in limits if _is_level(limit, own)]
    level = levels[0] if len(levels) == 1 else None
    if None not in (alpha_prime, level) and alpha_prime != level:
        raise typer.BadParameter(
            f"{alpha_prime:g} and {LIMIT} {own.group}<={level:g} are two limits on one group (give"
            " one)",
            param_hint="--alpha-prime",
        )
    return alpha_prime if level is None else level


def with_level(
    asked: GivenLimits, chosen: "Method", data: "DataSpec", *, alone: bool = False
) -> GivenLimits:
    """With the limit that the level of a method is, as in fcpo@0.4, where further were given.

    alone: also where none were.
    """
    level = chosen.level if chosen.capabilities.level_is_share else None
    if alone and level is not None and not asked.limits:
        return GivenLimits((own_limit(data, level),), data.item_table)
    return _joined(asked, level, data)


def _joined(asked: GivenLimits, level: float | None, data: "DataSpec") -> GivenLimits:
    if not asked.limits or level is None:
        return asked
    own = own_limit(data, level)
    if any(_is_level(limit, own) for limit in asked.limits):
        return asked
    return GivenLimits((own, *asked.limits), asked.item_table)


def _is_level(limit: "Limit", own: "Limit") -> bool:
    return limit.is_plain and not limit.is_floor and limit.group == own.group


def own_limit(data: "DataSpec", share: float) -> "Limit":
    """The limit on the group of the data: popular items, or values of its group column."""
    from fairhorizon.limits.language import GroupOf, Limit

    if data.group_column is None:
        return Limit.popular(share)
    return Limit(GroupOf(data.group_column, data.sensitive_values), share)


def served(
    run: "ModelFolder", texts: Sequence[str] | None, table: Path | None, alpha_prime: float | None
) -> "tuple[float | None, GivenLimits]":
    """The level and the limits to serve a run at: those given, else those of the fit.

    --alpha-prime alone takes the place of all limits of the fit.
    """
    data, stored = run.data(), run.limits()
    model_table = run.item_table() or data.item_table
    chosen = model_table if table is None else str(table.resolve())
    if texts:
        limits = parse(texts)
        level_of(limits, alpha_prime, data)  # refuses two that differ
        return None, _joined(GivenLimits(limits, chosen), alpha_prime, data)
    if table is not None and (alpha_prime is not None or not stored):
        raise ConfigError(f"{table}: which limits has it the columns of? (give {LIMIT} too)")
    if alpha_prime is not None:
        return alpha_prime, GivenLimits()
    return None, GivenLimits(stored, chosen)


def serving(
    run: "ModelFolder", model: "Recommender", bound: "Sequence[ResolvedLimit]"
) -> "Recommender":
    """The model, making its lists under the limits."""
    try:
        return model.with_limits(bound) if bound else model
    except ConfigError as error:
        raise ConfigError(f"{run.folder}: {error}") from None


def print_verdicts(
    bound: "Sequence[ResolvedLimit]", lists: "NDArray[np.int64]", prices: Mapping[str, float]
) -> bool:
    """A line per limit on what the lists make of it; whether all are kept.

    A limit that is missed by less than one showing counts as kept: no lists are closer to it.
    """
    from fairhorizon.limits.measured import families_of, limit_reached, verdict_lines, verdicts_of
    from fairhorizon.model.serving import kept_in_whole_showings

    found = []
    for one in bound:
        reached = limit_reached(one, lists, prices)
        rounded = not reached.kept and kept_in_whole_showings(one, lists)
        found.append(replace(reached, kept=True) if rounded else reached)
    for line in verdict_lines(verdicts_of(found, families_of(bound))):
        typer.echo(line)
    return all(one.kept for one in found)


def measured(
    bound: "Sequence[ResolvedLimit]", lists: "NDArray[np.int64]", prices: Mapping[str, float]
) -> "tuple[LimitReached, ...]":
    """What the lists make of the limits; a note names each that is not kept."""
    from fairhorizon.limits.measured import limit_reached, verdict_of

    found = tuple(limit_reached(one, lists, prices) for one in bound)
    for one in found:
        if not one.kept:
            typer.echo(f"note: {one.limit} {verdict_of(one)}", err=True)
    return found
