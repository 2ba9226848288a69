"""The long run: all users are served step after step, and exposure changes the groups.

A step: lists for all users, their feedback, counts, new groups and, where it is due, an update of
the server. The record covers everything shown since the run began.
"""

import time
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from fairhorizon.agents.base import Server
from fairhorizon.environment.dynamics import Outcome, State, advance
from fairhorizon.environment.feedback import Audience, UserModel
from fairhorizon.errors import ConfigError, ModelError
from fairhorizon.exposure.counts import Churn, Exposure
from fairhorizon.metrics.fairness import coverage, gini
from fairhorizon.metrics.shares import exceeds
from fairhorizon.ranking import discount
from fairhorizon.settings import Settings

Positive = Annotated[int, Field(ge=1)]
Row = dict[str, float | int]


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
    warm_up: Annotated[int, Field(ge=0)] = 50
    """Steps at the start in which the limit need not be kept."""


class Accuracy:
    """NDCG and recall of each user's accumulated list, a step at a time.

    DCG adds up v_j times the value of the item shown at rank j of the whole list, the ideal DCG v_j
    times the value of the j-th best item, each when it is shown; v_j = 1 / log2(1 + j).
    """

    def __init__(self, n_users: int) -> None:
        self.dcg, self.ideal, self.found = torch.zeros(3, n_users, dtype=torch.float64)

    def add(self, values: Tensor, audience: Audience, first: int) -> dict[str, float]:
        """values: (b, K) of the items at ranks first + 1, ..., first + K; 0 for what earns nothing.

        Means over the users with any item of positive value; NaN without any.
        """
        last = first + values.shape[1]
        v = discount(torch.arange(first + 1, last + 1, dtype=torch.float64))
        self.dcg += values @ v
        self.ideal += audience.best(first, last).cpu() @ v
        self.found += values.sum(1)
        total = audience.total().cpu()
        return {"ndcg": _mean_ratio(self.dcg, self.ideal), "recall": _mean_ratio(self.found, total)}

    def tensors(self) -> dict[str, Tensor]:
        return {"dcg": self.dcg, "ideal": self.ideal, "found": self.found}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        self.dcg, self.ideal, self.found = (
            tensors[name].clone() for name in ("dcg", "ideal", "found")
        )


class LimitRecord:
    """How the running popularity rate keeps to its limit."""

    def __init__(self, alpha_prime: float, warm_up: int) -> None:
        self.alpha_prime, self.warm_up = alpha_prime, warm_up
        self.steps = 0  # since the warm-up
        self.broken = 0  # steps with a rate above the limit
        self.largest = 0.0  # overshoot

    def record(self, step: int, rate: float) -> dict[str, float]:
        """NaN, the rate when nothing was shown, breaks no limit."""
        violation = max(0.0, rate - self.alpha_prime)
        if step > self.warm_up:
            self.steps += 1
            self.broken += exceeds(rate, self.alpha_prime)
            self.largest = max(self.largest, violation)
        return {
            "violation": violation,
            "violation_share": self.broken / self.steps if self.steps else float("nan"),
            "largest_overshoot": self.largest,
        }

    def tensors(self) -> dict[str, Tensor]:
        return {
            "steps": torch.tensor(self.steps),
            "broken": torch.tensor(self.broken),
            "largest": torch.tensor(self.largest, dtype=torch.float64),
        }

    def restore(self, tensors: dict[str, Tensor]) -> None:
        self.steps, self.broken = int(tensors["steps"]), int(tensors["broken"])
        self.largest = float(tensors["largest"])


class LongRun:
    """A server and all users of a user model, step by step, while exposure moves the groups.

    server: from `server(limits)` of a fitted model.
    users: who answers: `evaluation_scenario` for those of the log, or `SimulatedUsers`; with a
        history of at least `server.queue_length` items.
    exposure: what was shown before; it is updated with every step.
    settings: without them, those of the paper: 400 steps of one item.
    """

    def __init__(
        self,
        server: Server,
        users: UserModel,
        exposure: Exposure,
        settings: LongRunSettings | None = None,
    ) -> None:
        self.server, self.exposure = server, exposure
        self.settings = settings or LongRunSettings()
        self.state, self.audience = users.begin(torch.arange(users.n_users))
        self.steps = 0  # taken
        known = self.state.queue.shape[1]
        if known < server.queue_length:
            raise ConfigError(
                f"the server reads {server.queue_length} items of a user's history, the user "
                f"model has {known} (begin it with a history of {server.queue_length})"
            )
        self._accuracy = Accuracy(users.n_users)
        self._limit = LimitRecord(self.settings.alpha_prime, self.settings.warm_up)

    @property
    def finished(self) -> bool:
        """Whether all steps of the settings were taken; `step` can still be called."""
        return self.steps >= self.settings.steps

    def step(self) -> Row:
        """Serve every user once and return the record of the step, shares between 0 and 1.

        docs/long-run.md explains its keys; the server may add some, such as its price.
        """
        settings, exposure, before = self.settings, self.exposure, self.state
        shown_before = (exposure.n_shown, exposure.n_sensitive, exposure.n_initial)
        start = time.perf_counter()
        lists, outcome = self._serve()
        seconds = time.perf_counter() - start
        exposure.add(lists)
        start = time.perf_counter()
        self.server.observe(lists, outcome, exposure)
        seconds += time.perf_counter() - start
        self.state = outcome.state

        values = values_of(lists, before, self.audience)
        accuracy = self._accuracy.add(values, self.audience, self.steps * settings.list_length)
        self.steps += 1
        self.audience.pass_time()
        churn = Churn(0, 0.0)
        if self.steps % settings.relabel_every == 0:
            churn = exposure.relabel()
        if self.steps % settings.update_every == 0:
            self.server.update()
        rates = _popularity_rates(exposure, shown_before)
        row: Row = {
            "step": self.steps,
            **accuracy,
            "gini": gini(exposure.shown),
            **rates,
            **self._limit.record(self.steps, rates["popularity_rate"]),
            "churn": churn.items,
            "churn_share": churn.share,
            "reward": float(outcome.reward.double().mean()),
            "coverage": coverage(exposure.shown),
            "seconds": seconds,
        }
        notes = self.server.notes()
        if taken := sorted(row.keys() & notes):
            raise ConfigError(
                f"the server has a note on {taken[0]!r}, which the record has already (give the "
                "note another name)"
            )
        return row | notes

    def tensors(self) -> dict[str, Tensor]:
        """A copy of everything that the steps have changed, by flat names."""
        exposure = self.exposure
        counted = (exposure.n_shown, exposure.n_sensitive, exposure.n_initial)
        by_step = (exposure.n_first, exposure.n_last, int(exposure.shrunk))
        parts = {
            "state": {"queue": self.state.queue, "blocked": self.state.blocked},
            "exposure": {
                "counts": torch.from_numpy(exposure.counts),
                "shown": torch.from_numpy(exposure.shown),
                "sensitive": exposure.sensitive,
                "initial": exposure.initial,
                "counted": torch.tensor(counted),
                "by_step": torch.tensor(by_step),
            },
            "run": {"steps": torch.tensor(self.steps)},
            "accuracy": self._accuracy.tensors(),
            "limit": self._limit.tensors(),
            "audience": self.audience.tensors(),
            "server": self.server.tensors(),
        }
        return {
            f"{part}.{name}": tensor.clone(memory_format=torch.contiguous_format)
            for part, tensors in parts.items()
            for name, tensor in tensors.items()
        }

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Continue from `tensors` of another run of the same server, users and settings."""
        parts: dict[str, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            part, _, rest = name.partition(".")
            parts.setdefault(part, {})[rest] = tensor.clone()
        state, exposure = parts["state"], parts["exposure"]
        for name, shape in (
            ("queue", self.state.queue.shape),
            ("blocked", self.state.blocked.shape),
        ):
            if state[name].shape != shape:
                raise ModelError(
                    f"the stored run has {name} of shape {tuple(state[name].shape)}, this one "
                    f"{tuple(shape)}: it belongs to other data or another server (start anew)"
                )
        device = self.state.users.device
        self.state = State(self.state.users, state["queue"].to(device), state["blocked"].to(device))
        self.exposure.counts[:] = exposure["counts"].numpy()
        self.exposure.shown[:] = exposure["shown"].numpy()
        self.exposure.sensitive = exposure["sensitive"]
        self.exposure.initial = exposure["initial"]
        counted = exposure["counted"].tolist()
        self.exposure.n_shown, self.exposure.n_sensitive, self.exposure.n_initial = counted
        self.steps = int(parts["run"]["steps"])
        # Runs stored without it are of users who stay: all steps are alike.
        alike = self.exposure.n_shown // max(1, self.steps)
        first, last, shrunk = exposure.get("by_step", torch.tensor([alike, alike, 0])).tolist()
        self.exposure.n_first, self.exposure.n_last = first, last
        self.exposure.shrunk = bool(shrunk)
        self._accuracy.restore(parts["accuracy"])
        self._limit.restore(parts["limit"])
        self.audience.restore(parts.get("audience", {}))
        self.server.restore(parts.get("server", {}), self.state)

    def _serve(self) -> tuple[Tensor, Outcome]:
        lists = self.server.serve(self.state, self.exposure)
        expected = (len(self.state.users), self.settings.list_length)
        if lists.shape != expected:
            raise ConfigError(
                f"the server gives lists of shape {tuple(lists.shape)}, the run needs {expected} "
                "(give both the same list_length)"
            )
        return lists, advance(self.state, lists, self.audience, self.exposure.sensitive)


def values_of(lists: Tensor, state: State, audience: Audience) -> Tensor:
    """(b, K) relevance of the items shown in `state`; 0 for blocked and repeated items."""
    blocked = state.blocked.gather(1, lists.clamp(min=0))
    if lists.shape[1] > 1:
        same = lists[:, :, None] == lists[:, None, :]
        blocked |= torch.tril(same, diagonal=-1).any(dim=2)
    return audience.relevance(lists).masked_fill(blocked, 0.0).cpu()


def _popularity_rates(exposure: Exposure, before: tuple[int, int, int]) -> dict[str, float]:
    """Of all showings and of this step, under the labels when shown and the initial labels."""
    now = (exposure.n_shown, exposure.n_sensitive, exposure.n_initial)
    step = [after - earlier for after, earlier in zip(now, before, strict=True)]
    names = ("popularity_rate", "popularity_rate_initial")
    rates = {name: _share(part, now[0]) for name, part in zip(names, now[1:], strict=True)}
    of_step = {
        f"step_{name}": _share(part, step[0]) for name, part in zip(names, step[1:], strict=True)
    }
    return rates | of_step


def _share(part: int, whole: int) -> float:
    return part / whole if whole else float("nan")


def _mean_ratio(parts: Tensor, wholes: Tensor) -> float:
    """Mean of part / whole over the users whose whole is not 0; NaN without any."""
    present = wholes > 0
    return float((parts[present] / wholes[present]).mean()) if present.any() else float("nan")
