"""Whether limits were kept, in one line each."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from typing import Protocol as Interface

DECIMALS = range(1, 7)
CLOSE = 0.05  # of what is printed to what it is, relatively
MANY = 5  # values of one column that have a line each; of more, one line is about all


class ReachedLimit(Interface):
    """A limit and what lists made of it; limits/measured.py measures it and says what is what."""

    @property
    def limit(self) -> str: ...
    @property
    def asked(self) -> float: ...
    @property
    def is_floor(self) -> bool: ...
    @property
    def reached(self) -> float | None: ...
    @property
    def kept(self) -> bool: ...
    @property
    def n_lists(self) -> int: ...
    @property
    def broken(self) -> int | None: ...
    @property
    def at(self) -> Mapping[int, float]: ...
    @property
    def weighed(self) -> float | None: ...
    @property
    def lists_above(self) -> float | None: ...
    @property
    def violations(self) -> int | None: ...
    @property
    def price(self) -> float | None: ...
    def to_json(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Verdict:
    """A limit, or the same limit on many values of a column, and whether it was kept."""

    limit: str
    kept: bool
    verdict: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def verdicts_of(found: Sequence[ReachedLimit], families: Sequence[str]) -> tuple[Verdict, ...]:
    """A verdict per limit, in order; the limits of a large family have one between them.

    families: of each limit, what the limit on all values of its column would be called.
    """
    members: dict[str, list[ReachedLimit]] = {}
    for one, family in zip(found, families, strict=True):
        members.setdefault(family, []).append(one)
    verdicts: list[Verdict] = []
    for family, limits in members.items():
        if len(limits) > MANY:
            verdicts.append(_of_family(family, limits))
        else:
            verdicts += [Verdict(one.limit, one.kept, verdict_of(one)) for one in limits]
    return tuple(verdicts)


def verdict_of(found: ReachedLimit) -> str:
    """As in "kept: 38.2 % of at most 40 %" or "not kept in 12 of 943 lists, ..."."""
    if found.broken is not None:
        if found.kept:
            return f"kept in all of {found.n_lists:,} lists: {_asked(found)} of each"
        lists = f"not kept in {found.broken:,} of {found.n_lists:,} lists"
        # of a limit on beginnings, a list may break it and be within the limit as a whole
        worst = f", the worst has {_reached(found)} of {_asked(found)}"
        return lists + worst if _away(found) > 0 else lists
    if found.kept:
        return f"kept: {_reached(found)} of {_asked(found)}"
    return f"not kept: {_reached(found)} of {_asked(found)}, {_points(found)}"


def _of_family(family: str, limits: Sequence[ReachedLimit]) -> Verdict:
    broken = [one for one in limits if not one.kept]
    if not broken:
        closest = max(limits, key=_away)
        text = f"kept by all {len(limits):,} values, closest {closest.limit}: {_reached(closest)}"
        return Verdict(family, True, text)
    worst = max(broken, key=_away)
    how = f"not kept by {len(broken):,} of {len(limits):,} values"
    found = verdict_of(worst).removeprefix("not kept: ")
    return Verdict(family, False, f"{how}, worst {worst.limit}: {found}")


def _away(found: ReachedLimit) -> float:
    """How far the share is on the wrong side."""
    beyond = (found.reached or 0.0) - found.asked
    return -beyond if found.is_floor else beyond


def _asked(found: ReachedLimit) -> str:
    return f"at {'least' if found.is_floor else 'most'} {100 * found.asked:.6g} %"


def _reached(found: ReachedLimit) -> str:
    """With one decimal, and more where these would hide on which side of the limit it is."""
    reached, asked = 100 * (found.reached or 0.0), round(100 * found.asked, 9)
    for decimals in range(_decimals(reached), DECIMALS[-1] + 1):
        text = f"{reached:.{decimals}f}"
        if found.kept or float(text) != asked:
            break
    return f"{text} %"


def _points(found: ReachedLimit) -> str:
    away = 100 * _away(found)
    return f"{away:.{_decimals(away)}f} points too {'few' if found.is_floor else 'many'}"


def _decimals(percent: float) -> int:
    """One, and for less than a percent as many as are close to it."""
    near = (d for d in DECIMALS if abs(round(percent, d) - percent) <= CLOSE * percent)
    return DECIMALS[0] if percent > 1 else next(near, DECIMALS[-1])
