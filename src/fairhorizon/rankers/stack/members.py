"""The rankers of a stack: settings that suit the log, two fits of each, and their weights."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fairhorizon.data.splits import Split
from fairhorizon.histories import UserItems
from fairhorizon.rankers.fitting import FitJob, Ready, cores, fit_all, side_by_side
from fairhorizon.rankers.ranker import Ranker
from fairhorizon.rankers.stack.choosing import chosen_settings
from fairhorizon.rankers.stack.findings import Findings, Member
from fairhorizon.rankers.stack.later_part import LaterPart, frequent_part
from fairhorizon.rankers.stack.weighing import Shortlists, best_weights
from fairhorizon.settings import Given
from fairhorizon.vocabulary import OnEpoch, Protocol

SEARCHED_USERS, SEARCHED_ITEMS = 3000, 1000  # settings are chosen on a smaller log


@dataclass(frozen=True)
class StackTask:
    """What rankers are fitted to."""

    split: Split
    protocol: Protocol
    seed: int
    earlier_ready: Ready = field(
        default_factory=dict
    )  # fitted on the training log before its later part
    whole_ready: Ready = field(default_factory=dict)  # fitted on the whole training log
    on_stage: Callable[[str], object] = lambda _: None
    on_epoch: OnEpoch | None = None


@dataclass(frozen=True)
class Members:
    """Rankers that have a weight, each fitted twice."""

    earlier: tuple[Ranker[Any], ...]  # on what comes before the later part; empty without one
    whole: tuple[Ranker[Any], ...]  # on the whole training log
    weights: tuple[float, ...]  # above 0, 1 for the largest
    findings: Findings

    @property
    def ndcg(self) -> tuple[float, ...]:
        """Of each alone."""
        alone = {member.method: member.ndcg for member in self.findings.members}
        return tuple(alone[ranker.method] for ranker in self.whole)


def adapted(
    drafts: Sequence[Ranker[Any]], given_to: Callable[[str], Given], task: StackTask
) -> list[Ranker[Any]]:
    """The rankers with the settings that suit a smaller log of the kind; given ones stay."""
    small = frequent_part(
        task.split, most_users=SEARCHED_USERS, most_items=SEARCHED_ITEMS, seed=task.seed
    )
    part = LaterPart.of_training(small, task.protocol, seed=task.seed)
    if not len(part.users):
        return list(drafts)

    def choose(draft: Ranker[Any]) -> Ranker[Any]:
        settings = chosen_settings(draft, part, given_to(draft.method))
        return type(draft)(settings, seed=draft.seed)

    return side_by_side(choose, drafts, lambda draft: draft.in_thread, at_once=cores())


def weighed_members(drafts: Sequence[Ranker[Any]], task: StackTask) -> Members:
    """The rankers, fitted, and the weights that give the best lists of what users took later.

    Weights are chosen on the last fifth of every user's training items, with rankers fitted on what
    comes before, and on the validation items, with rankers fitted on the whole training log.
    """
    split = task.split
    later = LaterPart.of_training(split, task.protocol, seed=task.seed)
    last = LaterPart.of(split, UserItems.of(split.validation), task.protocol, seed=task.seed)
    names = ", ".join(draft.method for draft in drafts)
    jobs = [FitJob(draft, split, task.whole_ready) for draft in drafts]
    if len(later.users):
        task.on_stage(f"{split.name}: fitting {names}, on all training items and on earlier ones")
        jobs += [FitJob(draft, later.split, task.earlier_ready) for draft in drafts]
    else:
        task.on_stage(f"{split.name}: fitting {names}")
    fits = fit_all(jobs, task.on_epoch)
    whole, earlier = fits[: len(drafts)], fits[len(drafts) :] or fits[: len(drafts)]
    pairs = [(one, two) for one, two in zip(whole, earlier, strict=True) if one and two]
    shortlists = [
        Shortlists.of_rankers([pair[number] for pair in pairs], part)
        for number, part in enumerate((last, later))
        if len(part.users)
    ]
    weights = best_weights(shortlists) if shortlists else torch.ones(len(pairs))
    kept = [pair for pair, weight in zip(pairs, weights, strict=True) if weight > 0]
    return Members(
        tuple(pair[1] for pair in kept) if len(later.users) else (),
        tuple(pair[0] for pair in kept),
        tuple(weights[weights > 0].tolist()),
        _findings([pair[0] for pair in pairs], weights, shortlists, split),
    )


def _findings(
    rankers: Sequence[Ranker[Any]], weights: Tensor, shortlists: Sequence[Shortlists], split: Split
) -> Findings:
    def ndcg(some: Tensor) -> float:
        parts = [shortlist.ndcg(some) for shortlist in shortlists]
        return float(torch.cat(parts).mean()) if parts else 0.0

    units = torch.eye(len(rankers)).unbind()
    members = [
        Member(ranker.method, float(weight), ranker.config, ndcg(unit))
        for ranker, weight, unit in zip(rankers, weights, units, strict=True)
    ]
    return Findings.of(split, tuple(members), ndcg(weights))
