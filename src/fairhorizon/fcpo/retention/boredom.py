"""Boredom, learned from who left: too many of the last showings were of one kind.

    P(u leaves over a showing) = h1 if more than m of the last w showings are of its kind, else h0

m and w are those under which the recorded departures are most likely. An item that would bore the
user loses (h1 - h0) times what is to come from somebody who stays.
"""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

SURE = 10.0  # log-likelihood that a rule has to gain, so that chance alone does not make one


@dataclass(frozen=True)
class Boredom:
    """most, window: m and w.  leaving: h1 - h0."""

    most: int
    window: int
    leaving: float

    @classmethod
    def from_showings(cls, counts: Tensor, left: Tensor) -> Self | None:
        """From recorded showings; None where no rule explains who left.

        counts: (n, W) of the last 1, ..., W showings, how many are of the kind of this one.
        left: (n,) bool, over this showing.
        """
        if not counts.any():  # no item has a kind
            return None
        usual, best, found = float(_log_likelihood(left)), SURE, None
        # All rules: there are at most W^2 / 2 of them, and each is a comparison of two shares.
        for window in range(2, counts.shape[1] + 1):
            for most in range(1, window):
                above = counts[:, window - 1] > most
                if not above.any() or above.all():
                    continue
                gained = float(_log_likelihood(left[above]) + _log_likelihood(left[~above])) - usual
                leaving = float(left[above].float().mean() - left[~above].float().mean())
                # Of rules that explain the same, the shortest window closes the fewest items. It
                # comes first, and the next has to be better by more than rounding.
                if leaving > 0 and gained > best + 1e-6:
                    best, found = gained, cls(most, window, leaving)
        return found


def _log_likelihood(left: Tensor) -> Tensor:
    """Of (n,) departures, by their own share."""
    share = left.double().mean()
    return len(left) * (torch.xlogy(share, share) + torch.xlogy(1 - share, 1 - share))
