"""The best random ranking under one linear constraint on exposure, for many users at once.

u: (b, n) utilities of every user's candidates, -inf where there are fewer than n
v: v_j = 1 / log2(1 + j), the attention that rank j gets (`ranking.discount`)
x: (b, n) exposure of the candidates, x = P v for a doubly stochastic P, that is a random ranking
f, c: maximise u.x subject to f.x = c, or f.x <= c

Singh and Joachims (2018, section 3) solve a linear program with n^2 unknowns. But utility and
constraint depend on P by x alone, and for a multiplier l the ranking that maximises u.x - l f.x is
the sort by u - l f. So the dual D(l) = max_x (u - l f).x + l c is convex and made of lines, one a
ranking, and at its lowest point two of them meet: one ranking with f.x >= c and one with f.x <= c,
mixed so that f.x = c. That point is found as LARAC finds it (Juttner et al., 2001): sort where the
lines of the two best known rankings cross; if no ranking lies above them there, they are the two.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fairhorizon.ranking import discount, some_at_a_time

ROUNDING = 1e-12  # relative to the largest possible sum over the candidates
SORTED_AT_ONCE = 2**17  # candidates; a tensor of them is 1 MiB and stays in the cache
STEEPEST = 1e200  # far beyond any multiplier in use, with finite products


@dataclass(frozen=True)
class Mixture:
    """For every user two rankings, each the sort by u - multiplier * f, ties in given order."""

    low: Tensor  # (b,) the multiplier of one ranking
    high: Tensor  # (b,) that of the other; the same where one ranking is enough
    weight: Tensor  # (b,) probability of the first
    feasible: Tensor  # (b,) bool; where False, the ranking nearest to the constraint is returned
    objective: Tensor  # (b,) u.x
    constraint: Tensor  # (b,) f.x

    def draw(self, generator: torch.Generator) -> Tensor:
        """(b,) the multiplier of one of a user's two rankings."""
        chance = torch.rand(len(self.weight), generator=generator, dtype=torch.float64)
        return self.low.where(chance.to(self.weight.device) < self.weight, self.high)

    def expected_exposure(self, u: Tensor, f: Tensor) -> Tensor:
        """(b, n) x, for the u and f of the solution; 0 where there is no candidate."""
        low, high = (exposure(u, f, multiplier) for multiplier in (self.low, self.high))
        return high.lerp(low, self.weight[:, None])


def attention(n: int) -> Tensor:
    """v_j of the ranks j = 1, ..., n."""
    return discount(torch.arange(1, n + 1, dtype=torch.float64))


def total_attention(u: Tensor) -> Tensor:
    """(b,) the total exposure of every user's candidates: the sum of x."""
    totals = torch.cat([torch.zeros(1, dtype=torch.float64), attention(u.shape[1]).cumsum(0)])
    return totals[u.isfinite().sum(1)]


def exposure(u: Tensor, f: Tensor, multiplier: Tensor) -> Tensor:
    """(b, n) x of the sort by u - multiplier * f."""
    keys = u - multiplier[:, None] * f
    order = keys.sort(dim=1, descending=True, stable=True).indices
    ranked = attention(u.shape[1]).expand_as(u)
    return torch.zeros_like(u).scatter(1, order, ranked).where(u.isfinite(), 0.0)


def solve_exposure(u: Tensor, f: Tensor, c: Tensor, *, at_most: bool = False) -> Mixture:
    """The optimal mixture of every user, for f.x = c or f.x <= c; all in float64."""
    chunks = some_at_a_time(u, f, c, cells=SORTED_AT_ONCE)
    parts = [_solve(_Lines(*chunk), at_most) for chunk in chunks]
    return Mixture(*(torch.cat(tensors) for tensors in zip(*parts, strict=True)))


class _Lines:
    """The lines of the dual: a ranking's multiplier, its f.x - c and its u.x, each (b,)."""

    def __init__(self, u: Tensor, f: Tensor, c: Tensor) -> None:
        candidates = u.isfinite()
        self.u, self.f, self.c = u, f.where(candidates, 0.0), c
        self.v, self.total = attention(u.shape[1]), total_attention(u)
        self.best = u.amax(1).where(candidates.any(1), 0.0)
        self.spread = self.best - u.where(candidates, self.best[:, None]).amin(1)

    def at(self, users: Tensor, multiplier: Tensor) -> Tensor:
        """(3, len(users)) of the sort by u - multiplier * f."""
        u, f = self.u[users], self.f[users]
        keys = multiplier[:, None] * f - u
        order = torch.from_numpy(np.argsort(keys.numpy(), axis=1))
        u_ranked, f_ranked = u.gather(1, order), f.gather(1, order)
        # the fast sort is not stable, which only matters where ties differ in f
        keys = multiplier[:, None] * f_ranked - u_ranked
        clash = (keys[:, 1:] == keys[:, :-1]) & (f_ranked[:, 1:] != f_ranked[:, :-1])
        tied = clash.any(1).nonzero().squeeze(1)
        if len(tied):
            keys = multiplier[tied, None] * f[tied] - u[tied]
            order = keys.sort(dim=1, stable=True).indices
            u_ranked[tied], f_ranked[tied] = u[tied].gather(1, order), f[tied].gather(1, order)
        # relative to the best candidate, to keep digits where utilities are large and close
        loss = (u_ranked - self.best[users, None]).masked_fill_(u_ranked == -torch.inf, 0.0)
        # not as a matrix product, whose rounding depends on the number of users
        excess, loss = (f_ranked * self.v).sum(1) - self.c[users], (loss * self.v).sum(1)
        return torch.stack([multiplier, excess, loss])

    def steepest(self, users: Tensor) -> Tensor:
        """A multiplier beyond which the candidates are sorted by f alone."""
        gaps = self.f[users].sort(dim=1).values.diff(dim=1)
        gaps = torch.cat([gaps, torch.full((len(users), 1), torch.inf)], dim=1)  # f all the same
        smallest = gaps.where(gaps > 0, torch.inf).amin(1)
        spread = self.spread[users]
        return (2 * spread.where(spread > 0, 1.0) / smallest).clamp(max=STEEPEST)


def _solve(lines: _Lines, at_most: bool) -> tuple[Tensor, ...]:
    """The fields of the mixture."""
    everyone = torch.arange(len(lines.u))
    low = lines.at(everyone, torch.zeros_like(lines.c))
    high = low.clone()
    excess = low[1]
    rounding = ROUNDING * lines.f.abs().amax(1) * lines.total
    broken = (excess if at_most else excess.abs()) > rounding
    users = broken.nonzero().squeeze(1)
    high[:, users] = lines.at(users, excess[users].sign() * lines.steepest(users))
    feasible = high[1] * excess.sign() <= rounding
    feasible[~broken] = True
    low = low.where(feasible, high)
    users = users[feasible[users]]
    while len(users):
        users = _tighten(lines, low, high, users)
    between = (low[1] - high[1]) != 0
    weight = (high[1] / (high[1] - low[1])).where(between, 1.0).clamp(0, 1)
    _, excess, loss = high.lerp(low, weight)
    objective = loss + lines.best * lines.total
    return low[0], high[0], weight, feasible, objective, excess + lines.c


def _tighten(lines: _Lines, low: Tensor, high: Tensor, users: Tensor) -> Tensor:
    """Sort where the two lines of each user cross; returns the users that are not solved yet."""
    (_, a_low, b_low), (_, a_high, b_high) = low[:, users], high[:, users]
    crossing = (b_low - b_high) / (a_low - a_high)
    new = lines.at(users, crossing)
    _, a, b = new
    above = (b - crossing * a) - (b_low - crossing * a_low)
    inside = (torch.minimum(a_low, a_high) < a) & (a < torch.maximum(a_low, a_high))
    better = inside & (above > ROUNDING * lines.spread[users] * lines.total[users])
    as_low = a.sign() == a_low.sign()
    low[:, users[better & as_low]] = new[:, better & as_low]
    high[:, users[better & ~as_low]] = new[:, better & ~as_low]
    return users[better]
