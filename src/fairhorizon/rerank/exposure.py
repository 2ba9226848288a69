"""Fairness of Exposure (Singh and Joachims, 2018) over the candidates of any ranker.

For many users at once it finds the best random ranking under one linear constraint on exposure:

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

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal, Self

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fairhorizon.errors import ConfigError
from fairhorizon.ranking import discount, rows_at_once, some_at_a_time, top
from fairhorizon.rerank.reranker import UserReranker

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
        # Drawn on the CPU in double precision, so that all devices draw the same rankings.
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
    # totals[m] is the attention of the first m ranks: candidates are sorted to the top, so a user
    # with m of them fills exactly these.
    totals = torch.cat([torch.zeros(1, dtype=torch.float64), attention(u.shape[1]).cumsum(0)])
    return totals[u.isfinite().sum(1)]


def exposure(u: Tensor, f: Tensor, multiplier: Tensor) -> Tensor:
    """(b, n) x of the sort by u - multiplier * f."""
    # Stable, so that candidates with equal keys keep their given order, which is that of item
    # codes.
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
        # NumPy's default sort is fast and not stable. That matters only where candidates with
        # equal keys differ in f, so only such users are sorted again.
        keys = multiplier[:, None] * f_ranked - u_ranked
        clash = (keys[:, 1:] == keys[:, :-1]) & (f_ranked[:, 1:] != f_ranked[:, :-1])
        tied = clash.any(1).nonzero().squeeze(1)
        if len(tied):
            keys = multiplier[tied, None] * f[tied] - u[tied]
            order = keys.sort(dim=1, stable=True).indices
            u_ranked[tied], f_ranked[tied] = u[tied].gather(1, order), f[tied].gather(1, order)
        # u.x less its largest possible value: keeps digits where utilities are large and close.
        loss = (u_ranked - self.best[users, None]).masked_fill_(u_ranked == -torch.inf, 0.0)
        # Not as a matrix product, whose rounding depends on the number of users.
        excess, loss = (f_ranked * self.v).sum(1) - self.c[users], (loss * self.v).sum(1)
        return torch.stack([multiplier, excess, loss])

    def steepest(self, users: Tensor) -> Tensor:
        """A multiplier beyond which the candidates are sorted by f alone."""
        # Candidates swap places where the multiplier times the gap in f exceeds the gap in u. Twice
        # the largest gap in u over the smallest gap in f sorts by f alone.
        gaps = self.f[users].sort(dim=1).values.diff(dim=1)
        gaps = torch.cat([gaps, torch.full((len(users), 1), torch.inf)], dim=1)  # f all the same
        smallest = gaps.where(gaps > 0, torch.inf).amin(1)
        spread = self.spread[users]
        return (2 * spread.where(spread > 0, 1.0) / smallest).clamp(max=STEEPEST)


def _solve(lines: _Lines, at_most: bool) -> tuple[Tensor, ...]:
    """The fields of the mixture."""
    everyone = torch.arange(len(lines.u))
    # Start without the constraint: the sort by utility, multiplier 0.
    low = lines.at(everyone, torch.zeros_like(lines.c))
    high = low.clone()
    excess = low[1]
    # A sum of n terms is exact to about this.
    rounding = ROUNDING * lines.f.abs().amax(1) * lines.total
    broken = (excess if at_most else excess.abs()) > rounding
    users = broken.nonzero().squeeze(1)
    # The other end is the sort that favours the constraint most: a large multiplier, positive where
    # f.x is too large, negative where too small.
    high[:, users] = lines.at(users, excess[users].sign() * lines.steepest(users))
    # If even that end does not reach the constraint, no ranking does, and it is the nearest.
    feasible = high[1] * excess.sign() <= rounding
    feasible[~broken] = True
    low = low.where(feasible, high)
    users = users[feasible[users]]
    while len(users):
        users = _tighten(lines, low, high, users)
    # The weight at which the mixed excess is 0: w a_low + (1 - w) a_high = 0.
    between = (low[1] - high[1]) != 0
    weight = (high[1] / (high[1] - low[1])).where(between, 1.0).clamp(0, 1)
    _, excess, loss = high.lerp(low, weight)
    objective = loss + lines.best * lines.total
    return low[0], high[0], weight, feasible, objective, excess + lines.c


def _tighten(lines: _Lines, low: Tensor, high: Tensor, users: Tensor) -> Tensor:
    """Sort where the two lines of each user cross; returns the users that are not solved yet."""
    (_, a_low, b_low), (_, a_high, b_high) = low[:, users], high[:, users]
    # Line l of a ranking: loss b - l a. Both lines have the same value at this multiplier.
    crossing = (b_low - b_high) / (a_low - a_high)
    new = lines.at(users, crossing)
    _, a, b = new
    # By how much the ranking found there beats the two known ones. If it does not, these are
    # optimal.
    above = (b - crossing * a) - (b_low - crossing * a_low)
    # A new line has a slope between the other two, up to rounding; anything else would loop.
    inside = (torch.minimum(a_low, a_high) < a) & (a < torch.maximum(a_low, a_high))
    better = inside & (above > ROUNDING * lines.spread[users] * lines.total[users])
    # It replaces the end on its own side of the constraint, so that the two still enclose it.
    as_low = a.sign() == a_low.sign()
    low[:, users[better & as_low]] = new[:, better & as_low]
    high[:, users[better & ~as_low]] = new[:, better & ~as_low]
    return users[better]


SCORES_AT_ONCE = 2**22  # of float64, 32 MiB
Constraint = Literal["parity", "treatment", "impact", "share"]


@dataclass(frozen=True)
class ExposureProgram:
    """Maximise u.x subject to f.x = c or f.x <= c over the candidates of every user."""

    items: Tensor  # (b, n) the candidates, by item code
    u: Tensor  # (b, n) their scores, -inf where an item may not be shown
    f: Tensor  # (b, n)
    c: Tensor  # (b,)


class ExposureFairness(UserReranker):
    """Fairness of exposure (Singh & Joachims 2018): the best random ranking that is fair to G0.

    X0 and X1 are the exposures of the candidates of either group, together X; a candidate's merit
    is its score, scaled to [0, 1] among the user's candidates, and M0, M1 are the groups' sums.

        parity     X0 / n0 = X1 / n1     equal mean exposure of both groups
        treatment  X0 / M0 = X1 / M1     exposure in proportion to merit
        impact     the same for exposure times merit, that is for clicks
        share      X0 = target * X

    `at-most` in place of `equal` lets G0 have less. Parity and share depend only on the
    order of scores and the ratios of their differences, so any ranker can be used; merit takes
    scores by value. A group without candidates counts as fairly treated; a share may be infeasible.
    """

    method = "foe"

    candidates: Annotated[int, Field(ge=0)] = 200
    """Number of best items by score that are re-ranked; 0: the whole catalogue."""
    constraint: Constraint = "parity"
    """Notion of fairness: parity (equal exposure), treatment (exposure by merit), impact (clicks by
    merit) or share (a target share of exposure)."""
    target: Annotated[float, Field(ge=0, le=1)] = 0.4
    """Share of the exposure for the sensitive group, if the constraint is share."""
    form: Literal["equal", "at-most"] = "equal"
    """Whether the sensitive group gets exactly its fair exposure or at most that."""

    def at_level(self, level: float) -> Self:
        """At most this share of exposure for G0."""
        change = {"constraint": "share", "target": level, "form": "at-most"}
        return self.model_validate(self.model_dump() | change)

    def share_limit(self, sensitive: Tensor) -> float:
        """The target; without one, the share of G0 in the whole catalogue at parity."""
        return self.target if self.constraint == "share" else float(sensitive.double().mean())

    def allowance(self, length: int) -> int:
        if 0 < self.candidates < length:
            raise ConfigError(
                f"foe: a list of {length} cannot be made of {self.candidates} candidates "
                f"(set candidates to {length} or more)"
            )
        return length

    def handicap(self, scores: Tensor, sensitive: Tensor, generator: torch.Generator) -> Tensor:
        """multiplier * f of a ranking drawn from the user's mixture; inf for other items."""
        handicap = torch.full_like(scores, torch.inf, dtype=torch.float64)
        unreachable = 0
        parts = handicap.split(rows_at_once(scores.shape[1], SCORES_AT_ONCE))
        for part, (problem, mixture) in zip(parts, self._solved(scores, sensitive), strict=True):
            price = mixture.draw(generator)[:, None] * problem.f
            part.scatter_(1, problem.items, price.where(problem.u.isfinite(), torch.inf))
            unreachable += int((~mixture.feasible).sum())
        if unreachable:
            warnings.warn(self._note(unreachable, *scores.shape), stacklevel=2)
        return handicap

    def expected_exposure(self, scores: Tensor, sensitive: Tensor) -> Tensor:
        """(n_items,) sum over users of the exposure that items get from the mixtures."""
        total = torch.zeros(scores.shape[1], dtype=torch.float64)
        for problem, mixture in self._solved(scores, sensitive):
            x = mixture.expected_exposure(problem.u, problem.f)
            total.scatter_add_(0, problem.items.flatten(), x.flatten())
        return total

    def problem(self, scores: Tensor, sensitive: Tensor) -> ExposureProgram:
        """The optimisation problem of these users."""
        # Sorted by item code, so that ties are broken as in all other lists.
        if 0 < self.candidates < scores.shape[1]:
            items = top(scores, self.candidates)[1].sort(dim=1).values
        else:
            items = torch.arange(scores.shape[1]).expand(scores.shape)
        u = scores.gather(1, items).double()
        group = sensitive[items] & u.isfinite()
        x = total_attention(u)
        if self.constraint == "share":
            return ExposureProgram(items, u, group.double(), self.target * x)
        # Parity in terms of a share: X0 / n0 = X1 / n1 is X0 = n0 / (n0 + n1) X. Treatment has
        # merits in place of the counts.
        weights = u.isfinite().double() if self.constraint == "parity" else merits(u)
        of_group, of_all = weights.where(group, 0.0).sum(1), weights.sum(1)
        share = (of_group / of_all).where(of_all > 0, 0.0)  # no candidates, no weight
        if self.constraint == "impact":  # divided by M0 or M1, then times M0 M1 / (M0 + M1)
            f = weights * torch.where(group, 1 - share[:, None], -share[:, None])
            return ExposureProgram(items, u, f, torch.zeros_like(x))
        return ExposureProgram(items, u, group.double(), share * x)

    def _solved(
        self, scores: Tensor, sensitive: Tensor
    ) -> Iterator[tuple[ExposureProgram, Mixture]]:
        for some in scores.split(rows_at_once(scores.shape[1], SCORES_AT_ONCE)):
            problem = self.problem(some, sensitive)
            at_most = self.form == "at-most"
            yield problem, solve_exposure(problem.u, problem.f, problem.c, at_most=at_most)

    def _note(self, users: int, of: int, n_items: int) -> str:
        some = 0 < self.candidates < n_items
        which = f"the {self.candidates} candidates" if some else "all items"
        what = f"is fair by {self.constraint}"
        if self.constraint == "share":
            most = "at most " if self.form == "at-most" else ""
            what = f"gives the group {most}{100 * self.target:g} % of the exposure"
        return f"for {users} of {of} users no ranking of {which} {what}; they get the nearest one"


def merits(u: Tensor) -> Tensor:
    """Scores scaled to [0, 1] among a user's candidates; 1 where all are equal, 0 for -inf."""
    candidates = u.isfinite()
    best = u.amax(1, keepdim=True)
    worst = u.where(candidates, torch.inf).amin(1, keepdim=True)
    scaled = ((u - worst) / (best - worst)).where(best > worst, 1.0)
    return scaled.where(candidates, 0.0)
