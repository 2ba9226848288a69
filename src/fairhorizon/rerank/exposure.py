"""Fairness of Exposure (Singh and Joachims, 2018) over the candidates of any ranker."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal, Self

import torch
from pydantic import Field
from torch import Tensor

from fairhorizon.errors import ConfigError
from fairhorizon.ranking import rows_at_once, top
from fairhorizon.rerank.exposure_solver import Mixture, solve_exposure, total_attention
from fairhorizon.rerank.reranker import UserReranker

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
        if 0 < self.candidates < scores.shape[1]:
            items = top(scores, self.candidates)[1].sort(dim=1).values
        else:
            items = torch.arange(scores.shape[1]).expand(scores.shape)
        u = scores.gather(1, items).double()
        group = sensitive[items] & u.isfinite()
        x = total_attention(u)
        if self.constraint == "share":
            return ExposureProgram(items, u, group.double(), self.target * x)
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
