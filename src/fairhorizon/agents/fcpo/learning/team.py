"""Those who train together, each with some of the users; one alone is a team too.

Everything that is learned from is a sum over users. Members compute their users' part of it, `sum`
adds the parts, and so all take the same step. Random numbers come from generators in the same state
everywhere, drawn for all users: nobody's numbers depend on how many members there are.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fairhorizon.policy.draws import Draws


@dataclass(frozen=True)
class Batch:
    """One member's users in a batch of the team."""

    users: Tensor  # (own,) their codes with the member
    rows: Tensor  # (own,) their positions in the batch
    size: int  # of the batch
    draws: Draws  # for these rows


class Team:
    """A team of one, who has all users: sums are those of its own parts."""

    rank = 0  # of this member
    size = 1
    device = torch.device("cpu")  # where sums are made

    def sum(self, parts: Sequence[Tensor]) -> Sequence[Tensor]:
        """Each tensor summed over all members, in one message; the same bits for everybody."""
        return parts

    def agree(self, tensors: Sequence[Tensor]) -> None:
        """Take over those of rank 0: elsewhere the last digits of the same sums may differ."""

    def count(self, own: int) -> int:
        """Of something that every member has some of, how many there are in all."""
        (total,) = self.sum([torch.tensor(own)])
        return int(total)

    def own(self, users: Tensor) -> Tensor:
        """The positions of this member's users: every `size`-th code, from its rank on."""
        return (users % self.size == self.rank).nonzero().squeeze(1)

    def batches(self, users: Tensor, at_once: int, generator: torch.Generator) -> Iterator["Batch"]:
        """Its own among these users of the team, who are taken so many at a time."""
        for some in users.split(at_once):
            rows = self.own(some)
            # a member has codes of its own, 0, 1, ..., for its users
            yield Batch(some[rows] // self.size, rows, len(some), Draws(generator, rows, len(some)))

    def draw(self, size: int, places: Tensor, n_places: int, generator: torch.Generator) -> Tensor:
        """Which own things are among `size` drawn from those of all members, in the order drawn.

        places: (own,) where each own thing is in the order of one who has all of them, of
        n_places; others' things are at other places, and places may be empty.
        """
        held = torch.zeros(n_places, dtype=torch.uint8)
        held[places] = 1
        (held,) = self.sum([held])
        numbers = held.cumsum(0) - 1
        total = int(held.sum())
        own = torch.full((total,), -1)
        own[numbers[places]] = torch.arange(len(places))
        drawn = own[torch.randperm(total, generator=generator)[:size]]
        return drawn[drawn >= 0]


ALONE = Team()
