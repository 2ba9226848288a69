"""The long run: all users are served step after step, and exposure changes the groups.

A step: lists for all users, their feedback, counts, new groups and, where it is due, an update of
the recommender. The record covers everything shown since the run began.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor

from fairhorizon.errors import ConfigError, ModelError
from fairhorizon.evaluation.run_records import Accuracy, LimitRecord, Staying, values_of
from fairhorizon.histories import ItemSets, TableSets, check_table
from fairhorizon.limits.counts import Churn, Exposure
from fairhorizon.limits.step_limits import StepLimit
from fairhorizon.metrics.fairness import coverage, gini, most_shown_share
from fairhorizon.recommenders.online import OnlineRecommender
from fairhorizon.settings import Settings
from fairhorizon.simulation.dynamics import Outcome, State, advance, offered_again
from fairhorizon.simulation.feedback import UserModel
from fairhorizon.vocabulary import Labels

Positive = Annotated[int, Field(ge=1)]
Row = dict[str, float | int]

RATES = {  # the columns of the record
    Labels.MOMENT: "popularity_rate",
    Labels.FIRST: "popularity_rate_initial",
    Labels.LAGGED: "popularity_rate_lagged",
    Labels.RETROSPECTIVE: "popularity_rate_retrospective",
}


class LongRunSettings(Settings):
    """Settings of a long run."""

    steps: Positive = 400
    """Number of lists that every user is shown."""
    list_length: Positive = 1
    """Items of a list (K)."""
    relabel_every: Positive = 1
    """Steps after which the popular group is computed again from the exposure so far."""
    update_every: Positive = 10
    """Steps after which a method that learns online updates its policy."""
    alpha_prime: Annotated[float, Field(ge=0, le=1)] = 0.4
    """Largest running popularity rate, the share of popular items in everything shown (alpha')."""
    labels: Labels = Labels.RETROSPECTIVE
    """Which labels that rate is counted under: first, moment, lagged or retrospective."""
    lag: Positive = 50
    """How many steps back labels are that lag."""
    warm_up: Annotated[int, Field(ge=0)] = 50
    """Steps at the start in which the limit need not be kept."""
    repeat_after: Positive | None = None
    """Steps after which an item may be shown to the same user again; None: never."""

    @property
    def most_showings(self) -> int:
        """How often an item can be shown to one user in all steps."""
        return 1 if self.repeat_after is None else -(-self.steps // self.repeat_after)

    def stated(self) -> dict[str, Any]:
        """In JSON, without what is not set: runs from before there was such a setting keep keys."""
        return self.model_dump(mode="json", exclude_none=True)


class LongRun:
    """Serves all users of a user model step by step, while exposure moves the groups.

    recommender: from `online(limits)` of a fitted model.
    users: who answers: `evaluation_scenario` for those of the log, or `SimulatedUsers`; with a
        history of at least `recommender.queue_length` items.
    exposure: what was shown before; it is updated with every step.
    settings: without them 400 steps of one item, as in the paper.
    limits: further ones, whose excess is recorded whether or not the recommender keeps them.
    user_groups: (n_users,) bool each; of users who can leave, who is there is recorded by group.
    practice: (n_users,) bool, users whose likes and presence are for choosing settings only.
    served: (b,) codes of the users who are served, for runs before the one that counts; None: all.
    """

    def __init__(
        self,
        recommender: OnlineRecommender,
        users: UserModel,
        exposure: Exposure,
        settings: LongRunSettings | None = None,
        limits: Sequence[StepLimit] = (),
        user_groups: Mapping[str, Tensor] | None = None,
        practice: Tensor | None = None,
        served: Tensor | None = None,
    ) -> None:
        self.recommender, self.exposure, self.limits = recommender, exposure, tuple(limits)
        self.settings = settings or LongRunSettings()
        self.state, self.audience = users.begin(
            torch.arange(users.n_users) if served is None else served
        )
        check_table(*self.state.blocked_sets.shape)
        self.steps = 0  # taken
        # A shorter queue would be padded and quietly make the method worse than it is.
        known = self.state.queue.shape[1]
        if known < recommender.queue_length:
            raise ConfigError(
                f"the method reads {recommender.queue_length} items of a user's history, the user "
                f"model has {known} (begin it with a history of {recommender.queue_length})"
            )
        # History and all that was shown; None where that is what is blocked: without repeats.
        self._seen: ItemSets | None = None
        self._period: int | None = None  # places after which a value can count again
        if (after := self.settings.repeat_after) is not None:
            self._seen, self.state = self.state.blocked_sets, offered_again(self.state, after)
            if self.audience.answers_anew:
                self._period = after * self.settings.list_length
        self._accuracy = Accuracy(len(self.state.users), self._period)
        self._staying = Staying(len(self.state.users), user_groups, practice)
        self._limit = LimitRecord(self.settings.alpha_prime, self.settings.warm_up)

    @property
    def finished(self) -> bool:
        """Whether all steps of the settings were taken; `step` can still be called."""
        return self.steps >= self.settings.steps

    def ndcg_of_users(self) -> Tensor:
        """(n_users,) NDCG of each user's accumulated list; NaN for users who like no item."""
        return self._accuracy.ndcg_of_users()

    def likes_of_users(self) -> Tensor:
        """(n_users,) how much each user has liked so far."""
        return self._staying.likes.clone()

    def showings_of_users(self) -> Tensor:
        """(n_users,) how much each user has been shown so far."""
        return self._staying.showings.clone()

    def step(self) -> Row:
        """Serve every user once and return the record of the step, shares between 0 and 1.

        docs/long-run.md explains its keys; the recommender may add some, such as its price.
        """
        settings, exposure = self.settings, self.exposure
        blocked = self.state.blocked_sets
        seen = blocked if self._seen is None else self._seen
        spent = seen if self._period is None else blocked  # earns nothing if shown
        # Only what the method itself does is timed: serving and learning, not the measurements.
        before = _counted(exposure)
        start = time.perf_counter()
        lists, outcome = self._serve(spent)
        seconds = time.perf_counter() - start
        # Before `add`: a list is judged by the groups under which it was made.
        broken = [lists_beyond(one, lists, exposure) for one in self.limits]
        exposure.add(lists)
        start = time.perf_counter()
        # The recommender sees the exposure with this step, but the groups of before it.
        self.recommender.observe(lists, outcome, exposure)
        seconds += time.perf_counter() - start
        self.state = outcome.state

        # Before `pass_time`, which may change what users like.
        values = values_of(lists, spent, self.audience)
        # Recall counts an item once, so what was shown at any time before earns no recall.
        new_values = values if spent is seen else values_of(lists, seen, self.audience)
        if self._seen is not None:
            self._seen = self._seen.with_items(lists)
        first = self.steps * settings.list_length
        accuracy = self._accuracy.add(values, new_values, self.audience, first)
        self.steps += 1
        self.audience.pass_time()
        self.state = replace(self.state, here=self.audience.here)
        # Relabel first: an update learns under the groups of the next step.
        churn = Churn(0, 0.0)
        if self.steps % settings.relabel_every == 0:
            churn = exposure.relabel()
        if self.steps % settings.update_every == 0:
            self.recommender.update()
        row: Row = {
            "step": self.steps,
            **accuracy,
            **self._staying.add(lists, outcome.hits, outcome.state.here),
            "gini": gini(exposure.shown),
            "limited_rate": exposure.rate(settings.labels),
            **_popularity_rates(exposure, before),
            "lorenz_share": most_shown_share(exposure.shown, int(exposure.sensitive.sum())),
            **self._limit.record(self.steps, exposure.rate(settings.labels)),
            "churn": churn.items,
            "churn_share": churn.share,
            "reward": float(outcome.reward.double().mean()),
            "coverage": coverage(exposure.shown),
            "seconds": seconds,
        }
        excess = {
            f"excess of {one.name}": one.excess(exposure) if share is None else share
            for one, share in zip(self.limits, broken, strict=True)
        }
        notes = self.recommender.notes()
        if taken := sorted((row.keys() | excess.keys()) & notes.keys()):
            raise ConfigError(
                f"the method has a note on {taken[0]!r}, which the record has already (give the "
                "note another name)"
            )
        return row | notes | excess

    def tensors(self) -> dict[str, Tensor]:
        """A copy of everything that the steps have changed, by flat names."""
        state = {"queue": self.state.queue, "blocked": self.state.blocked_sets.mask()}
        if self._seen is not None:
            state |= {"seen": self._seen.mask(), "recent": torch.cat(self.state.returning, dim=1)}
        parts = {
            "state": state,
            "exposure": self.exposure.tensors(),
            "run": {"steps": torch.tensor(self.steps)},
            "accuracy": self._accuracy.tensors(),
            "staying": self._staying.tensors(),
            "limit": self._limit.tensors(),
            "audience": self.audience.tensors(),
            "recommender": self.recommender.tensors(),
        }
        return {
            # A contiguous copy: later steps must not change what was returned, and safetensors
            # refuses views.
            f"{part}.{name}": tensor.clone(memory_format=torch.contiguous_format)
            for part, tensors in parts.items()
            for name, tensor in tensors.items()
        }

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Continue from `tensors` of another run of the same recommender, users and settings."""
        parts: dict[str, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            part, _, rest = name.partition(".")
            parts.setdefault(part, {})[rest] = tensor.clone()
        state = parts["state"]
        # Before anything is changed: a failed restore leaves the run as it was.
        self._check(state)
        device = self.state.users.device
        queue, blocked = state["queue"].to(device), TableSets(state["blocked"].to(device))
        self.state = State(self.state.users, queue, blocked)
        if (after := self.settings.repeat_after) is not None:
            self._seen, recent = TableSets(state["seen"].to(device)), state["recent"].to(device)
            self.state = offered_again(self.state, after, recent, self.settings.list_length)
        self.exposure.restore(parts["exposure"])
        self.steps = int(parts["run"]["steps"])
        self._accuracy.restore(parts["accuracy"])
        self._staying.restore(parts["staying"])
        self._limit.restore(parts["limit"])
        self.audience.restore(parts.get("audience", {}))
        self.state = replace(self.state, here=self.audience.here)
        # Last, since a recommender may rebuild what it derives from the restored state.
        self.recommender.restore(parts.get("recommender", {}), self.state)

    def _check(self, stored: dict[str, Tensor]) -> None:
        """That a stored state is of these users and items."""
        shapes = {"queue": self.state.queue.shape, "blocked": self.state.blocked_sets.shape}
        for name, shape in shapes.items():
            if stored[name].shape != shape:
                raise ModelError(
                    f"the stored run has {name} of shape {tuple(stored[name].shape)}, this one "
                    f"{tuple(shape)}: it belongs to other data or another recommender (start anew)"
                )

    def _serve(self, spent: ItemSets) -> tuple[Tensor, Outcome]:
        lists = self.recommender.serve(self.state, self.exposure)
        if self.state.here is not None:  # whoever serves in rounds has lists for all
            lists = lists.masked_fill(~self.state.here[:, None], -1)
        expected = (len(self.state.users), self.settings.list_length)
        if lists.shape != expected:
            raise ConfigError(
                f"the method gives lists of shape {tuple(lists.shape)}, the run needs {expected} "
                "(give both the same list_length)"
            )
        return lists, advance(self.state, lists, self.audience, self.exposure.sensitive, spent)


def lists_beyond(limit: StepLimit, lists: Tensor, exposure: Exposure) -> float | None:
    """The share of lists that break a limit on every list; None if the limit is on all showings."""
    bounds = limit.most_in_list(lists.shape[1])
    if bounds is None:
        return None
    fewest, most = (torch.from_numpy(bound) for bound in bounds)
    costs = limit.costs(exposure).to(lists.device) != 0
    counted = torch.from_numpy(limit.weights(lists.shape[1]) > 0).to(lists.device)
    # (b, K): how many items that cost are among the first 1, 2, ..., K places.
    inside = ((lists >= 0) & costs[lists.clamp(min=0)] & counted).cumsum(1).cpu()
    return float(((inside > most) | (inside < fewest)).any(1).double().mean())


def _counted(exposure: Exposure) -> dict[Labels, int]:
    """All showings so far in G0, under the labels that showings keep."""
    return {labels: int(inside.sum()) for labels, inside in exposure.in_group.items()}


def _popularity_rates(exposure: Exposure, before: dict[Labels, int]) -> dict[str, float]:
    """Of all showings under all labels, and of this step under the first and those when shown."""
    rates = {column: exposure.rate(labels) for labels, column in RATES.items()}
    step, now = int(exposure.last_step.sum()), _counted(exposure)
    of_step = {
        f"step_{RATES[labels]}": (now[labels] - before[labels]) / step if step else float("nan")
        for labels in (Labels.MOMENT, Labels.FIRST)
    }
    return rates | of_step
