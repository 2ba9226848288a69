"""A method that takes part in a long study."""

from dataclasses import dataclass
from typing import Self

from fairhorizon.methods import Method


@dataclass(frozen=True)
class Contestant:
    """A method under the name that it was asked for by."""

    label: str
    method: Method

    @classmethod
    def of(cls, method: Method, alpha_prime: float) -> Self:
        """With its dial at alpha', if it has one for a share and nobody has turned it."""
        untouched = method.abilities.level_is_share and method.level is None
        return cls(str(method), method.limited_to(alpha_prime) if untouched else method)
