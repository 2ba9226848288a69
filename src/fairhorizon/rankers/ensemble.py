"""Several rankers as one: how they are fitted, which settings suit the log, and what each weighs.

The method `stack` and the warm start of `fcpo` are made of the same `Ensemble`, fitted by the same
`fit_ensemble`.
"""

import multiprocessing
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, Self, TypeVar

import numpy as np
import torch
from pydantic import AfterValidator, Field, model_validator
from torch import Tensor

from fairhorizon.data.splits import MOST_TIED, Split, tied_share
from fairhorizon.errors import DataError
from fairhorizon.histories import UserItems
from fairhorizon.rankers.als import Als
from fairhorizon.rankers.candidates import VectorSearch, again
from fairhorizon.rankers.ease import MOST_ITEMS, Ease, RecentEase
from fairhorizon.rankers.gru4rec import Gru4Rec
from fairhorizon.rankers.itemknn import ItemKnn, RecentItemKnn
from fairhorizon.rankers.popularity import Popularity
from fairhorizon.rankers.ranker import Ranker
from fairhorizon.rankers.ridge import Ridge
from fairhorizon.rankers.selection import (
    LaterPart,
    Shortlists,
    frequent_part,
    select_settings,
    select_weights,
)
from fairhorizon.ranking import standardised
from fairhorizon.settings import Given, Settings, SettingsError, changed
from fairhorizon.storage import below
from fairhorizon.vocabulary import OnEpoch, Protocol

Ready = Mapping[str, Ranker[Any]]  # fitted rankers, by method
LARGE = 8192  # items; matrices of more take gigabytes, so there are few fits at a time
FEW = 2

Job = TypeVar("Job")
Result = TypeVar("Result")


def draft_of(kind: type[Ranker[Any]], given: Given, protocol: Protocol, seed: int) -> Ranker[Any]:
    """A ranker that is not fitted yet; one that validates is given the protocol."""
    validates = "protocol" in kind.config_class.model_fields
    known = {"protocol": protocol} if validates else {}
    return kind(changed(kind.config_class(), {**known, **given}), seed=seed)


def fresh(ranker: Ranker[Any]) -> Ranker[Any]:
    """The same ranker before its fit."""
    return type(ranker)(ranker.config, seed=ranker.seed)


@dataclass(frozen=True)
class FitJob:
    """A ranker to be fitted on a log; one that is ready with the same settings is taken as it is.

    The draft stays as it is: the result is another object.
    """

    draft: Ranker[Any]
    split: Split
    ready: Ready = field(default_factory=dict)

    def run(self, on_epoch: OnEpoch | None) -> Ranker[Any] | DataError:
        # Only the same settings make the same ranker.
        known = self.ready.get(self.draft.method)
        if known is not None and known.config == self.draft.config:
            return known
        try:
            return fresh(self.draft).fit(self.split, on_epoch=on_epoch)
        except DataError as error:
            return error


def fit_all(jobs: Sequence[FitJob], on_epoch: OnEpoch | None = None) -> list[Ranker[Any] | None]:
    """The fitted rankers in order, None for one that cannot be fitted on its log."""
    large = any(job.split.train.n_items > LARGE for job in jobs)
    results = side_by_side(
        lambda job: job.run(on_epoch),
        jobs,
        lambda job: job.draft.in_thread,
        at_once=min(FEW, cores()) if large else cores(),
    )
    refusals = [result for result in results if isinstance(result, DataError)]
    if refusals and len(refusals) == len(jobs):
        raise refusals[0]
    # One that was refused on both logs is named once.
    for text in dict.fromkeys(str(refusal) for refusal in refusals):
        warnings.warn(f"without one of its rankers: {text}", stacklevel=2)
    return [None if isinstance(result, DataError) else result for result in results]


def side_by_side(
    work: Callable[[Job], Result],
    jobs: Sequence[Job],
    in_thread: Callable[[Job], bool],
    *,
    at_once: int,
) -> list[Result]:
    """The results of all jobs, in order.

    A job in a thread of its own has one core, also where only one is at work at a time: on several,
    sums would be rounded otherwise, and the result would depend on the machine. A job that may not
    be in a thread, because it draws from the generator that threads share, runs in the present one.
    """
    with ThreadPoolExecutor(at_once, initializer=torch.set_num_threads, initargs=(1,)) as threads:
        futures = {
            number: threads.submit(work, job) for number, job in enumerate(jobs) if in_thread(job)
        }
        try:
            here = {n: work(job) for n, job in enumerate(jobs) if n not in futures}
            return [here[n] if n in here else futures[n].result() for n in range(len(jobs))]
        except BaseException:
            threads.shutdown(cancel_futures=True)
            raise


def cores() -> int:
    """That this process may use; in one of several processes at work, one."""
    if multiprocessing.parent_process() is not None:
        return 1
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


Kinds = Mapping[str, type[Ranker[Any]]]  # classes of rankers by method

# The rankers whose settings can be given within an ensemble. All but ALS can be members of a stack
# from the beginning; ALS is added in large catalogues.
MEMBERS: Kinds = {
    ranker.method: ranker
    for ranker in (Ridge, Ease, RecentEase, ItemKnn, RecentItemKnn, Popularity, Gru4Rec, Als)
}
FEW_EPOCHS: Given = {"max_epochs": 8}  # of ALS where it is one of many, in a large catalogue
SEARCHED_USERS, SEARCHED_ITEMS = 3000, 1000  # settings are selected on a smaller log
SHORT, LONG = 10, 40  # items of a user's history
RECENCY = ("half_life", "decays")  # settings by which recent items count more


# ---- The settings of members ---------------------------------------------------------------------


def _as_in_a_file(settings: dict[str, Any]) -> dict[str, Any]:
    """Lists for tuples, so that what is stored and read again is the same."""
    return {name: list(v) if isinstance(v, tuple) else v for name, v in settings.items()}


GivenSettings = Annotated[dict[str, Any], AfterValidator(_as_in_a_file)]


class MemberSettings(Settings):
    """Settings of an ensemble: beside its own, those of its rankers that are given, by name."""

    ridge: GivenSettings = Field(default_factory=dict)
    """Settings of ridge that are given, as in ridge.l2=3000; the others are chosen on the log."""
    ease: GivenSettings = Field(default_factory=dict)
    """Settings of ease or ease:recent that are given, as in ease.half_life=5."""
    itemknn: GivenSettings = Field(default_factory=dict)
    """Settings of itemknn or itemknn:recent that are given, as in itemknn.neighbours=100."""
    gru4rec: GivenSettings = Field(default_factory=dict)
    """Settings of gru4rec that are given, as in gru4rec.dim=32; the others are its defaults."""
    als: GivenSettings = Field(default_factory=dict)
    """Settings of als that are given, as in als.dim=128; the others are its defaults."""

    def given_to(self, name: str) -> Given:
        """The given settings of a ranker, `ease` or `ease:recent`; most rankers have none."""
        base = _base_of(name)
        given: Given = getattr(self, base) if base in MemberSettings.model_fields else {}
        return given

    @model_validator(mode="after")
    def _rankers_can_take_them(self) -> "MemberSettings":
        for base in MemberSettings.model_fields:
            # The variant, where there is one: it has all settings of the published method.
            kind = MEMBERS.get(f"{base}:recent", MEMBERS[base])
            try:
                changed(kind.config_class(), getattr(self, base))
            except SettingsError as error:
                raise ValueError(f"{base}: {error}") from None
        return self

    def drafts(
        self, kinds: Kinds, names: Sequence[str], split: Split, seed: int
    ) -> list[Ranker[Any]]:
        """The rankers of these names, not fitted yet, that suit the size of a catalogue."""
        protocol = getattr(self, "protocol", Protocol.STANDARD)
        drafts = []
        for name in suitable(names, split):
            given = self.given_to(name)
            # ALS that was added because the catalogue is large; as one of many it need not be
            # perfect.
            if name not in names:
                given = {**FEW_EPOCHS, **given}
            drafts.append(draft_of(kinds[name], given, protocol, seed))
        return drafts


def suitable(names: Sequence[str], split: Split) -> tuple[str, ...]:
    """These rankers, and ALS where a catalogue is so large that EASE knows but a part of it.

    Which of them are any good there is for their weights to say.
    """
    with_ease = any(_base_of(name) == "ease" for name in names)
    partial = split.train.n_items > MOST_ITEMS and with_ease and "als" not in names
    return (*names, "als") if partial else tuple(names)


def _base_of(name: str) -> str:
    """The method that a name is a variant of: `ease` of `ease:recent`."""
    return name.partition(":")[0]


# ---- Fitted rankers as one -----------------------------------------------------------------------


@dataclass(frozen=True)
class Ensemble:
    """Fitted rankers, and the weight of each in their sum.

    score = sum_e w_e z_e, z_e: the scores of ranker e, standardised over the items of a user.
    """

    rankers: tuple[Ranker[Any], ...]
    weights: tuple[float, ...]
    ndcg: tuple[float, ...] = ()  # of each ranker alone, where it was measured
    summary: tuple[str, ...] = ()  # what selecting them found out about the log, in words
    # of a large catalogue: where candidates are looked up, None for a ranker that scores all items
    searches: tuple[VectorSearch | None, ...] = ()

    def __deepcopy__(self, memo: dict[int, object]) -> "Ensemble":
        """The same ensemble: rankers are as large as catalogues, and nobody changes fitted ones."""
        return self

    @property
    def queue_length(self) -> int:
        """How many of a user's recent items `scores` reads."""
        return max(1, *(ranker.queue_length for ranker in self.rankers))

    def scores(self, users: Tensor, queue: Tensor, *, few: bool = False) -> Tensor:
        """(b, n_items) the weighted sum; few: of a few users, fast, sums may be rounded otherwise.

        users: (b,) codes.  queue: (b, N) recent items, newest last, padded in front with n_items.
        """
        # Standardised, since rankers differ in the scale of their scores; in their order, so that
        # sums are rounded alike.
        total = torch.zeros(())
        for ranker, weight in zip(self.rankers, torch.tensor(self.weights), strict=True):
            scores = ranker.score_small_batch if few else ranker.scores
            total = total + weight * standardised(scores(users, queue))
        return total

    def ways(self) -> Iterator[tuple[Ranker[Any], VectorSearch | None]]:
        """Pairs of a ranker and the search of its candidates, None where it scores all items."""
        return zip(self.rankers, self.searches or (None,) * len(self.rankers), strict=True)

    def weighed(self, weights: Sequence[float]) -> "Ensemble":
        """The same rankers with other weights."""
        return replace(self, weights=tuple(weights))

    def with_searches(self, searches: Sequence[VectorSearch | None]) -> "Ensemble":
        """With searches in as many clusters as those of the same rankers in another ensemble."""
        pairs = zip(searches, self.rankers, strict=True)
        return replace(self, searches=tuple(again(search, ranker) for search, ranker in pairs))

    def refitted(
        self, split: Split, ready: Ready | None = None, on_epoch: OnEpoch | None = None
    ) -> "Ensemble":
        """The same rankers fitted again, with the same weights; some may be ready."""
        fits = fit_all([FitJob(ranker, split, ready or {}) for ranker in self.rankers], on_epoch)
        return self.of_fitted(fits)

    def again(self, split: Split, on_epoch: OnEpoch | None = None) -> "Ensemble":
        """The same rankers fitted again as the last time, also in the number of their epochs."""
        fits = fit_all([FitJob(ranker.unfitted_copy(), split) for ranker in self.rankers], on_epoch)
        return self.of_fitted(fits)

    def of_fitted(self, fits: Sequence[Ranker[Any] | None]) -> "Ensemble":
        """With these rankers in place of its own, without those that are None."""
        kept = [number for number, ranker in enumerate(fits) if ranker is not None]
        return replace(
            self,
            rankers=tuple(ranker for ranker in fits if ranker is not None),
            weights=tuple(self.weights[number] for number in kept),
            ndcg=tuple(self.ndcg[number] for number in kept) if self.ndcg else (),
            searches=tuple(
                again(self.searches[number], fits[number]) for number in kept if self.searches
            ),
        )

    def tensors(self) -> dict[str, Tensor]:
        """The fitted values of all rankers, as they are stored."""
        return {
            f"expert.{number}.{name}": value
            for number, ranker in enumerate(self.rankers)
            for name, value in ranker.tensors().items()
        }

    def description(self) -> dict[str, Any]:
        """What is stored beside `tensors`."""
        measured = {"ndcg": list(self.ndcg), "summary": list(self.summary)} if self.ndcg else {}
        searched = [None if one is None else one.probes for one in self.searches]
        return {
            "rankers": [ranker.description() for ranker in self.rankers],
            "weights": list(self.weights),
            **measured,
            **({"probes": searched} if any(searched) else {}),
        }

    @classmethod
    def from_parts(
        cls, tensors: dict[str, Tensor], description: dict[str, Any], kinds: Kinds
    ) -> Self:
        """The ensemble that was described and stored."""
        rankers = []
        for number, stored in enumerate(description["rankers"]):
            own = below(f"expert.{number}.", tensors)
            rankers.append(kinds[stored["method"]].from_parts(own, stored))
        ndcg, summary = (tuple(description.get(name, ())) for name in ("ndcg", "summary"))
        searches = tuple(
            None if probes is None else VectorSearch.from_ranker(ranker, probes)
            for ranker, probes in zip(rankers, description.get("probes", ()), strict=False)
        )
        return cls(tuple(rankers), tuple(description["weights"]), ndcg, summary, searches)


# ---- Fitting and selecting -----------------------------------------------------------------------


@dataclass(frozen=True)
class EnsembleTask:
    """What the rankers of an ensemble are fitted to."""

    split: Split
    protocol: Protocol
    seed: int
    earlier_ready: Ready = field(default_factory=dict)  # fitted on what is before the later part
    whole_ready: Ready = field(default_factory=dict)  # fitted on the whole training log
    on_stage: Callable[[str], object] = lambda _: None
    on_epoch: OnEpoch | None = None


@dataclass(frozen=True)
class Member:
    """A ranker that was tried: its weight, its settings, and its accuracy alone."""

    method: str
    weight: float
    config: Settings
    ndcg: float

    @property
    def recent(self) -> bool | None:
        """Whether recent items count more; None for a ranker without such a setting."""
        settings = self.config.model_dump()
        values = [settings[name] for name in RECENCY if name in settings]
        return any(value is not None and value != (1.0,) for value in values) if values else None

    def __str__(self) -> str:
        changes = self.config.model_dump(exclude_defaults=True, exclude={"protocol"})
        words = " ".join(f"{name}={_short(value)}" for name, value in changes.items())
        return f"{self.method} {self.weight:.2g}" + (f" ({words})" if words else "")


@dataclass(frozen=True)
class FittedEnsemble:
    """An ensemble of the rankers that have a weight, fitted twice."""

    whole: Ensemble  # on the whole training log
    earlier: Ensemble | None  # on what comes before its later part; None where nothing comes later
    tried: tuple[Member, ...]  # also those without weight


def fit_ensemble(
    drafts: Sequence[Ranker[Any]],
    task: EnsembleTask,
    given_to: Callable[[str], Given] | None = None,
) -> FittedEnsemble:
    """Fit rankers with the settings and the weights that give the best lists of what came later.

    Settings are selected on a smaller log of the kind. Weights are selected on the last fifth of
    every user's training items, with rankers fitted on what comes before, and on the validation
    items, with rankers fitted on the whole training log. A ranker that adds nothing is left out.

    drafts: the rankers before their fit.  given_to: the settings of a ranker, by its name, that
    must stay as they are in its draft; None: all of them stay, nothing is searched.
    """
    split = task.split
    if given_to is not None:
        drafts = with_selected_settings(drafts, task, given_to)
    # Two parts that were not trained on: the end of the training log, large, and the validation
    # items, one per user but later.
    later = LaterPart.from_training(split, task.protocol, seed=task.seed)
    last = LaterPart.from_split(
        split, UserItems.from_log(split.validation), task.protocol, seed=task.seed
    )
    names = ", ".join(draft.method for draft in drafts)
    jobs = [FitJob(draft, split, task.whole_ready) for draft in drafts]
    if len(later.users):
        task.on_stage(f"{split.name}: fitting {names}, on all training items and on earlier ones")
        jobs += [FitJob(draft, later.split, task.earlier_ready) for draft in drafts]
    else:
        task.on_stage(f"{split.name}: fitting {names}")
    # All at once, so that the fits on both logs run side by side.
    fits = fit_all(jobs, task.on_epoch)
    on_whole, on_earlier = fits[: len(drafts)], fits[len(drafts) :] or fits[: len(drafts)]
    # A ranker that could not be fitted on one of the logs is left out of both.
    pairs = [(one, two) for one, two in zip(on_whole, on_earlier, strict=True) if one and two]
    shortlists = [
        Shortlists.from_rankers([pair[number] for pair in pairs], part)
        for number, part in enumerate((last, later))
        if len(part.users)
    ]
    # With nothing held out there is nothing to choose by: all count alike.
    weights = select_weights(shortlists) if shortlists else torch.ones(len(pairs))

    def ndcg(some: Tensor) -> float:
        parts = [shortlist.ndcg(some) for shortlist in shortlists]
        return float(torch.cat(parts).mean()) if parts else 0.0

    tried = tuple(
        Member(ranker.method, float(weight), ranker.config, ndcg(unit))
        for (ranker, _), weight, unit in zip(pairs, weights, torch.eye(len(pairs)), strict=True)
    )
    # Rankers without a weight are not stored and cost nothing when serving.
    kept = [number for number, member in enumerate(tried) if member.weight > 0]
    whole = Ensemble(
        tuple(pairs[number][0] for number in kept),
        tuple(tried[number].weight for number in kept),
        tuple(tried[number].ndcg for number in kept),
        summary_of(split, tried, ndcg(weights)),
    )
    earlier = whole.of_fitted([pairs[number][1] for number in kept]) if len(later.users) else None
    return FittedEnsemble(whole, earlier, tried)


def with_selected_settings(
    drafts: Sequence[Ranker[Any]], task: EnsembleTask, given_to: Callable[[str], Given]
) -> list[Ranker[Any]]:
    """The rankers with the settings that suit a smaller log of the kind; given ones stay."""
    small = frequent_part(
        task.split, most_users=SEARCHED_USERS, most_items=SEARCHED_ITEMS, seed=task.seed
    )
    part = LaterPart.from_training(small, task.protocol, seed=task.seed)
    if not len(part.users):
        return list(drafts)

    def with_best(draft: Ranker[Any]) -> Ranker[Any]:
        settings = select_settings(draft, part, given_to(draft.method))
        return type(draft)(settings, seed=draft.seed)

    return side_by_side(with_best, drafts, lambda draft: draft.in_thread, at_once=cores())


# ---- The summary in words ------------------------------------------------------------------------


def summary_of(split: Split, tried: Sequence[Member], together: float) -> tuple[str, str, str]:
    """The kind of log, the rankers by weight, and the accuracy of each and of all, in three lines.

    together: NDCG of the weighted sum.
    """
    weighed = [member for member in tried if member.weight > 0]
    without = [member.method for member in tried if not member.weight]
    rankers = ", ".join(str(member) for member in weighed)
    if without:
        rankers += f"; without {', '.join(without)}"
    alone = ", ".join(f"{member.method} {member.ndcg:.4f}" for member in tried)
    return (
        f"log: {_kind_of_log(split, weighed)}",
        f"rankers, by weight: {rankers}",
        f"NDCG@20 of what came later in training, and of validation: {alone}; "
        f"together {together:.4f}",
    )


def _kind_of_log(split: Split, weighed: Sequence[Member]) -> str:
    counts = split.train.user_counts()
    median = float(np.median(counts[counts > 0])) if (counts > 0).any() else 0.0
    length = "short" if median < SHORT else "long" if median >= LONG else "medium"
    words = f"{length} histories (median {median:g} training items)"
    if (tied := tied_share(split.train)) > MOST_TIED:
        words += f", {100 * tied:.0f} % of the rows tied in time"
    recent = [member.recent for member in weighed if member.recent is not None]
    if recent:
        words += (
            ", where recent items say more"
            if all(recent)
            else ", where recent items say no more than others"
            if not any(recent)
            else ", where recent items say more to some rankers"
        )
    return words


def _short(value: object) -> str:
    if isinstance(value, tuple):
        return "/".join(_short(part) for part in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


Name = Literal["ridge", "ease", "ease:recent", "itemknn", "itemknn:recent", "popularity", "gru4rec"]


class StackConfig(MemberSettings):
    """Settings of the stack."""

    rankers: Annotated[tuple[Name, ...], Field(min_length=1)] = (
        "ridge",
        "ease:recent",
        "itemknn:recent",
        "popularity",
    )
    """The rankers whose scores are added up."""
    adapt: bool = True
    """Whether the settings of the rankers are chosen on the log; if not, they are the defaults."""
    protocol: Protocol = Protocol.STANDARD
    """Which items the lists may show by which settings and weights are chosen."""


class Stack(Ranker[StackConfig]):
    """The weighted sum of several rankers, each with the settings that suit the log.

    score = sum_e w_e z_e, z_e: the scores of ranker e, standardised over the items of a user.

    Settings and weights are chosen by the NDCG of lists over what users took later: settings on the
    last fifth of every user's training items; weights on these, with rankers fitted on what comes
    before, and on the validation items, with rankers fitted on the whole training log. A ranker
    that adds nothing is left out. In a catalogue of which EASE knows but the frequent items, ALS is
    tried too.
    """

    method = "stack"
    uses_weights = True  # those of its rankers that do
    config_class = StackConfig

    ensemble_: Ensemble

    @property
    def queue_length(self) -> int:
        return self.ensemble_.queue_length

    def _learn(self, split: Split, on_epoch: OnEpoch | None) -> None:
        config = self.config
        drafts = config.drafts(MEMBERS, config.rankers, split, self.seed)
        task = EnsembleTask(split, config.protocol, self.seed, on_epoch=on_epoch)
        given_to = config.given_to if config.adapt else None
        self.ensemble_ = fit_ensemble(drafts, task, given_to).whole

    def refitted(self, split: Split, *, on_epoch: OnEpoch | None = None) -> Self:
        """The members fitted again with their settings; their weights stay."""
        other = type(self)(self.config, seed=self.seed)
        other.ensemble_ = self.ensemble_.again(split, on_epoch)
        other.fingerprint_ = split.train.fingerprint()
        return other

    def score_small_batch(self, users: Tensor, queue: Tensor) -> Tensor:
        return self.ensemble_.scores(users, queue, few=True)

    def scores(self, users: Tensor, queue: Tensor) -> Tensor:
        return self.ensemble_.scores(users, queue)

    def tensors(self) -> dict[str, Tensor]:
        return self.ensemble_.tensors()

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """The values of the members; who they are and their weights come from `from_parts`."""
        for number, member in enumerate(self.ensemble_.rankers):
            member.restore(below(f"expert.{number}.", tensors))

    def description(self) -> dict[str, Any]:
        return super().description() | {"ensemble": self.ensemble_.description()}

    @classmethod
    def from_parts(cls, tensors: dict[str, Tensor], description: dict[str, Any]) -> Self:
        stack = cls(StackConfig.from_file(description["config"]), seed=description["seed"])
        stack.fingerprint_ = description["fingerprint"]
        stack.ensemble_ = Ensemble.from_parts(tensors, description["ensemble"], MEMBERS)
        return stack
