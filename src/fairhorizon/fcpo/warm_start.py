"""The warm start of a policy over rankers: what it learns with, serves with, and begins from.

A policy that learns from the very interactions its rankers were fitted on trusts them too much.
So the training log is divided once more, as the whole log was: rankers are fitted on the earlier
part, the policy learns from the later part, and then the rankers are fitted on all of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fairhorizon.data.splits import Split, earlier_part
from fairhorizon.errors import DataError
from fairhorizon.fcpo.config import FcpoConfig
from fairhorizon.limits.groups import popular_group
from fairhorizon.rankers import RANKERS
from fairhorizon.rankers.candidates import (
    LARGE,
    SAMPLE,
    VectorSearch,
    is_installed,
    searched,
)
from fairhorizon.rankers.ensemble import (
    Ensemble,
    EnsembleTask,
    Ready,
    draft_of,
    fit_ensemble,
)
from fairhorizon.recommenders.base import Fitted, LogPart
from fairhorizon.recommenders.progress import Listener
from fairhorizon.settings import SettingsError
from fairhorizon.simulation.feedback import validation_scenario


def check_names(names: Sequence[str]) -> None:
    """Refuse names of rankers that do not exist."""
    unknown = sorted(set(names) - set(RANKERS))
    if unknown:
        raise SettingsError(
            f"warm_start: there is no ranker {unknown[0]!r} (there are {', '.join(RANKERS)})"
        )


@dataclass(frozen=True)
class WarmStart:
    """The rankers that a policy learns with, and those that it serves with."""

    learning: Ensemble
    serving: Ensemble

    def searched(self, split: Split, config: FcpoConfig, listener: Listener) -> "WarmStart":
        """With candidates that are looked up, in a catalogue that is large enough for it."""
        wanted = config.retrieval == "faiss" or split.train.n_items > LARGE
        if config.retrieval == "exact" or not wanted:
            return self
        if not is_installed():
            if config.retrieval == "faiss":
                raise SettingsError("retrieval=faiss needs FAISS: pip install 'fairhorizon[scale]'")
            listener.stage("every item is scored (pip install 'fairhorizon[scale]' for FAISS)")
            return self
        learning = _searched(self.learning, split, config, listener)
        # The same fitted rankers: one search serves both.
        if self.serving.rankers == self.learning.rankers:
            return WarmStart(learning, learning)
        return WarmStart(learning, self.serving.with_searches(learning.searches))


def fit_warm_start(
    split: Split, config: FcpoConfig, seed: int, fitted: Fitted, listener: Listener
) -> WarmStart:
    """Fit the rankers of the settings, weighed by what each adds to the lists.

    Their settings are chosen on the log too, where the settings of FCPO say so (adapt).
    """
    if config.refits_rankers and not len(earlier_part(split).train):
        raise DataError(
            f"{split.name or 'the split'} has no user with two training items, an earlier one "
            "for the rankers and a later one to learn from",
            remedy="give more, or fit fcpo:paper",
        )
    task = EnsembleTask(
        split,
        config.protocol,
        seed,
        earlier_ready=of_part(fitted, LogPart.EARLIER),
        whole_ready=of_part(fitted, LogPart.WHOLE),
        on_stage=listener.stage,
        on_epoch=listener.epoch,
    )
    if config.adapt:
        listener.stage(
            f"{split.name}: choosing settings of the rankers on a part of the training log"
        )
    drafts = config.drafts(RANKERS, config.warm_start, split, seed)
    fit = fit_ensemble(drafts, task, config.given_to if config.adapt else None)
    for line in fit.whole.summary:
        listener.stage(line)
    # Trained on the part that its rankers have not seen, where there is one.
    learning = fit.whole
    if config.refits_rankers and fit.earlier is not None:
        learning = fit.earlier
    return WarmStart(learning, fit.whole).searched(split, config, listener)


def _searched(ensemble: Ensemble, split: Split, config: FcpoConfig, listener: Listener) -> Ensemble:
    """The ensemble with a search for every ranker that has vectors, and what each finds, said."""
    scenario = validation_scenario(split, ensemble.queue_length, config.protocol)
    # Evenly spaced over all users, so that nothing is drawn.
    users = torch.arange(scenario.n_users)[:: max(1, scenario.n_users // SAMPLE)][:SAMPLE]
    state = scenario.state(users)
    group = torch.from_numpy(popular_group(split.train.item_counts(), config.popular_share))
    searches: list[VectorSearch | None] = []
    for ranker in ensemble.rankers:
        if ranker.item_vectors() is None:
            searches.append(None)
            continue
        search, recall = searched(
            ranker, state.users, state.queue, state.blocked, group, config.candidates
        )
        listener.stage(f"{ranker.method}: {recall}")
        searches.append(search)
    return replace(ensemble, searches=tuple(searches))


def refitted_ensemble(ensemble: Ensemble, split: Split, config: FcpoConfig) -> Ensemble:
    """The same rankers fitted again, with weights, and settings (adapt), that suit this log.

    A ranker that adds nothing now stays, without weight: it may add something later.
    """
    seed = ensemble.rankers[0].seed
    drafts = [
        draft_of(type(ranker), config.given_to(ranker.method), config.protocol, seed)
        for ranker in ensemble.rankers
    ]
    task = EnsembleTask(split, config.protocol, seed)
    chosen = fit_ensemble(drafts, task, config.given_to if config.adapt else None).whole
    ready = {ranker.method: ranker for ranker in chosen.rankers}
    weights = dict(zip(ready, chosen.weights, strict=True))
    # `chosen` leaves out rankers without weight; they are fitted here, with weight 0.
    fits = [ready.get(draft.method) or draft.fit(split) for draft in drafts]
    return replace(
        ensemble,
        rankers=tuple(fits),
        weights=tuple(weights.get(ranker.method, 0.0) for ranker in fits),
    )


def of_part(fitted: Fitted, part: LogPart) -> Ready:
    """The rankers that were fitted on one part of the log, by name."""
    return {need.method: ranker for need, ranker in fitted.items() if need.part is part}


def restored_ensemble(tensors: dict[str, Tensor], description: dict[str, Any]) -> Ensemble:
    """The ensemble that was described and stored, of any rankers."""
    return Ensemble.from_parts(tensors, description, RANKERS)
