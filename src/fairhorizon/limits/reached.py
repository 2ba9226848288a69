"""What was reached under a limit, as rows and reports see it."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self
from typing import Protocol as Interface


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
class LimitRow:
    """A limit and what a method made of it under several seeds, as a ReachedLimit.

    Means over the seeds, but: `kept` under all of them; `violations`, `broken` and `n_lists` of all
    of them together. In a long run, whose lists are not kept, violations are the steps after the
    warm-up that broke the limit, `n_lists` is 0, and of a limit on lists `reached` is None.
    """

    method: str
    seeds: tuple[int, ...]
    limit: str
    asked: float
    is_floor: bool
    reached: float | None
    kept: bool
    n_lists: int
    broken: int | None = None
    at: Mapping[int, float] = field(default_factory=dict)
    weighed: float | None = None
    lists_above: float | None = None
    violations: int | None = None
    price: float | None = None

    @classmethod
    def of(cls, method: str, seeds: Sequence[int], found: Sequence[ReachedLimit]) -> Self:
        """found: of one limit, by seed."""
        first = found[0]
        places = [k for k in first.at if all(k in one.at for one in found)]
        return cls(
            method=method,
            seeds=tuple(seeds),
            limit=first.limit,
            asked=first.asked,
            is_floor=first.is_floor,
            reached=mean_of([one.reached for one in found]),
            kept=all(one.kept for one in found),
            n_lists=sum(one.n_lists for one in found),
            broken=_total([one.broken for one in found]),
            at={k: sum(one.at[k] for one in found) / len(found) for k in places},
            weighed=mean_of([one.weighed for one in found]),
            lists_above=mean_of([one.lists_above for one in found]),
            violations=_total([one.violations for one in found]),
            price=mean_of([one.price for one in found]),
        )

    def to_json(self) -> dict[str, Any]:
        places = {str(k): share for k, share in self.at.items()}
        return asdict(self) | {"seeds": list(self.seeds), "at": places}


def mean_of(values: Sequence[float | None]) -> float | None:
    """None where one is."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def _total(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
