"""The sentence that a page opens with, and the marks behind names of methods."""

from collections.abc import Sequence
from dataclasses import dataclass

from fairhorizon.report.tables import group_items
from fairhorizon.studies.rows import OverSeeds, SummaryRow

TOLERANCE = 0.0005  # of a share: what is over the limit by less counts as kept
NAMED = 3  # of many that broke their limit
LIMIT_MISSED = " †"
LIMIT_MISSED_NOTE = (
    "† under some seed no evaluated round of the training kept the limit: the policy of its last "
    "round serves."
)


@dataclass(frozen=True)
class Kept:
    """A limit on a share, and the share that was found; None: not measured."""

    method: str
    limit: float
    share: float | None

    @property
    def is_kept(self) -> bool:
        return self.share is not None and self.share <= self.limit + TOLERANCE

    @property
    def has_limit(self) -> bool:
        return self.limit < 1


def of_row(row: SummaryRow, k: int) -> Kept:
    return Kept(row.method, row.alpha_prime, row.spread(f"popularity_rate@{k}").mean)


def limits_sentence(found: Sequence[Kept], group: str) -> str:
    """Which limits on the share of the group were kept, and which were not."""
    limited = [one for one in found if one.has_limit]
    items = group_items(group)
    if not limited:
        return f"No method had a limit on {items}."
    broken = [one for one in limited if not one.is_kept]
    if not broken:
        if len(limited) == 1:
            (one,) = limited
            return f"{one.method} kept its limit: {_share(one)} {items}, at most {_limit(one)}."
        return f"All {len(limited)} limits on {items} were kept."
    named = [f"{one.method} ({_share(one)}, at most {_limit(one)})" for one in broken[:NAMED]]
    more = len(broken) - len(named)
    words = ", ".join(named) + (f" and {more} more" if more else "")
    kept = len(limited) - len(broken)
    return f"{kept} of {len(limited)} limits on {items} kept; not kept by {words}."


def best_sentence(rows: Sequence[OverSeeds], metric: str, heading: str) -> str:
    """Which method has the highest mean of the metric."""
    known = {row.method: mean for row in rows if (mean := row.spread(metric).mean) is not None}
    if not known:
        return f"{heading} could not be measured."
    best = max(known, key=lambda method: known[method])
    if len(known) == 1:
        return f"{best} has an {heading} of {percent(known[best])}."
    return f"{best} is the most accurate, with an {heading} of {percent(known[best])}."


def percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def listed(words: Sequence[str]) -> str:
    """a, b and c."""
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def _share(one: Kept) -> str:
    return "not measured" if one.share is None else percent(one.share)


def _limit(one: Kept) -> str:
    return f"{100 * one.limit:g} %"


def marked(row: OverSeeds) -> str:
    """The method of a row, marked if a training of it did not keep its limit."""
    return row.method + (LIMIT_MISSED if row.limit_missed else "")


def mark_notes(rows: Sequence[OverSeeds]) -> list[str]:
    """Notes on the marks that are in use."""
    return [LIMIT_MISSED_NOTE] if any(row.limit_missed for row in rows) else []
