"""Retention learned offline: a record of answers is replayed, and users are served by it."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np
import torch
from torch import Tensor

from fairhorizon.data.interactions import Interactions
from fairhorizon.data.response_log import ResponseLog
from fairhorizon.errors import ConfigError
from fairhorizon.fcpo.config import RetentionConfig
from fairhorizon.fcpo.retention.model import RetentionModel
from fairhorizon.histories import UserItems
from fairhorizon.ranking import rows_at_once
from fairhorizon.recommenders.base import Recommender
from fairhorizon.recommenders.responses import ResponseHistory
from fairhorizon.simulation.feedback import Scenario
from fairhorizon.storage import as_bytes, below, load_model, of_bytes, save_model, understood

# ---- What was learned, and where the users of the record stand at its end ------------------------
#     worth(u) = (1 + gamma (W_1(s_u) - W_0(s_u))) / its mean over the showings of the record
#
# The mean changes no list, as it is the same for everybody; with it, values and prices stay in the
# units that they have without worth. No user is worth more or less than any was in the record:
# beyond its states, critics say anything.

KIND, RETENTION_FILE = "retention", "retention.safetensors"  # and its file in a run folder
LEARNED, RESPONSES, USERS = "learned.", "responses.", "users"
OF_USERS = ("run", RESPONSES, "kinds.")  # tensors of the model that belong to users
SIDES = torch.tensor([0.0, 1.0])  # whether a column is of the group
LEAST = 1e-6  # chance


@dataclass(frozen=True)
class WorthRange:
    """What a like was worth at the showings of a record: on average, at least and at most."""

    mean: float
    least: float
    most: float

    @classmethod
    def from_values(cls, worth: Tensor) -> Self:
        return cls(float(worth.double().mean()), float(worth.min()), float(worth.max()))

    def relative(self, worth: Tensor) -> Tensor:
        """Worth within these bounds, in units of the mean."""
        return worth.clamp(self.least, self.most) / self.mean


ANY_WORTH = WorthRange(1.0, 1.0, float("inf"))


@dataclass(frozen=True, eq=False)
class FittedRetention:
    """The worth of a like by state, and the states of the users of a record at its end."""

    gamma: float
    learned: Mapping[str, Tensor]  # of an `RetentionModel`
    responses: Mapping[str, Tensor]  # (n, ...) of an `ResponseHistory`
    users: tuple[str, ...]  # (n,) ids
    until: float  # the end of the record
    usual: WorthRange = ANY_WORTH

    @cached_property
    def rows(self) -> dict[str, int]:
        """Where users stand, by id."""
        return {one: row for row, one in enumerate(self.users)}

    def responses_of(self, users: Sequence[object | None], taken: Tensor) -> ResponseHistory:
        """The responses of users until the end of the record; none for other users.

        users: their ids; None: somebody without one.
        taken: (b,) how many items each has taken; those of the record at its beginning count there.
        """
        found = ResponseHistory(taken)
        # Critics know nothing of histories that are shorter or longer than any of the record.
        found.history = found.history.clamp(*self._histories)
        at = [-1 if one is None else self.rows.get(str(one), -1) for one in users]
        known = torch.tensor([row >= 0 for row in at], dtype=torch.bool)
        stored = torch.tensor([row for row in at if row >= 0], dtype=torch.int64)
        for name, own in found.tensors().items():
            own[known] = self.responses[name][stored]
        return found

    @torch.no_grad()
    def worth(self, responses: ResponseHistory, best: Tensor) -> Tensor:
        """(b,) float32: what a like of each user is worth, 1 on average over the record.

        best: (b, 2) of `best_open`.
        """
        # A copy, as `begin` changes it, and other threads may ask at the same time.
        retention = copy.copy(self._restored)
        retention.runs = []
        retention.begin(torch.zeros(len(best)))
        retention.responses = responses
        return self.usual.relative(1 + retention.gains(retention.valued(best, SIDES)))

    @cached_property
    def _histories(self) -> tuple[float, float]:
        """The shortest and the longest of the record, as a response history has them."""
        shortest, longest = self.responses["history"].aminmax()
        return float(shortest), float(longest)

    @cached_property
    def _restored(self) -> RetentionModel:
        return restored(self.gamma, self.learned)

    def save(self, path: Path) -> None:
        """Write the file that `load` reads."""
        tensors = {LEARNED + name: value for name, value in self.learned.items()}
        tensors |= {RESPONSES + name: value for name, value in self.responses.items()}
        tensors[USERS] = as_bytes({USERS: list(self.users)})
        numbers = {"gamma": self.gamma, "until": self.until, "usual": vars(self.usual)}
        save_model(path, KIND, tensors, numbers)

    @classmethod
    def load(cls, path: Path) -> Self:
        """What `save` wrote, tried once: a file of another version is refused here."""
        with understood(path):
            tensors, numbers = load_model(path, KIND)
            users = tuple(of_bytes(tensors[USERS])[USERS])
            parts = below(LEARNED, tensors), below(RESPONSES, tensors)
            usual = WorthRange(**numbers["usual"])
            found = cls(numbers["gamma"], *parts, users, numbers["until"], usual)
            found.worth(found.responses_of(users[:1], torch.zeros(1)), torch.zeros(1, 2))
            return found


def learned_part(retention: RetentionModel) -> dict[str, Tensor]:
    """What a retention model knows of likes in general, and nothing of any user."""
    tensors = retention.tensors()
    return {name: value for name, value in tensors.items() if not name.startswith(OF_USERS)}


def restored(gamma: float, learned: Mapping[str, Tensor], seed: int = 0) -> RetentionModel:
    """A retention model that knows this, before anybody is served."""
    # A record has no offers to learn a policy from, and likes alone count.
    settings = RetentionConfig(rounds=0, presence=0.0)
    retention = RetentionModel(gamma, settings=settings, seed=seed)
    retention.begin(torch.zeros(1))
    retention.restore({**retention.tensors(), **learned})
    return retention


def log_odds(probabilities: Tensor) -> Tensor:
    """Of probabilities; a score whose slope and level the answers calibrate."""
    return torch.logit(probabilities.float(), eps=LEAST)


def best_open(items: Tensor, probabilities: Tensor, sensitive: Tensor) -> Tensor:
    """(b, 2) log-odds of the best item outside the group and in it; -inf where there is none.

    items: (b, n) codes, -1 for what is not open.  probabilities: (b, n).
    """
    inside, shut = sensitive.cpu()[items.clamp(min=0)], items < 0
    scores = log_odds(probabilities.cpu()).masked_fill(shut, -torch.inf)
    sides = [scores.masked_fill(inside != side, -torch.inf).amax(1) for side in (False, True)]
    return torch.stack(sides, dim=1)


# ---- Learning: the users of a record side by side, showing by showing ----------------------------
# The probability of a like is logistic in the log-odds of the model's own probabilities, which
# follow from the user's history before the record, and in the user's answers so far.

GAMMA = 0.99  # discount of later likes, per showing
CELLS_AT_ONCE = 2**20  # users times showings that are replayed together
VALUES_AT_ONCE = 2**22
COLUMNS = torch.tensor([0.0, 1.0, 0.0, 1.0])  # in the group: the best of either side, what is shown


@dataclass(frozen=True, eq=False)
class OfflineReplay:
    """Some users of a record, a showing a column."""

    history: Tensor  # (b,) items that they had taken before
    best: Tensor  # (b, 2) of `best_open`
    scores: Tensor  # (b, T) log-odds of what was shown
    in_group: Tensor  # (b, T) bool
    shown: Tensor  # (b, T) bool: the last ones of users with fewer showings are False
    liked: Tensor  # (b, T) bool
    left: Tensor  # (b,) bool

    @property
    def lists(self) -> Tensor:
        """(b, T) the column of what was shown, among `COLUMNS`; -1 for nothing."""
        return torch.where(self.shown, 2 + self.in_group.long(), -1)

    def run(self, retention: RetentionModel) -> Tensor:
        """Let a model see one showing after the other, and in the end the last state.

        Returns (n,) what it takes a like to be worth at each showing.
        """
        retention.begin(self.history)
        lists, counts, worth = self.lists, self.shown.sum(1), []
        for step in range(self.shown.shape[1]):
            # Who left did so over the last showing, and was there until then.
            here = ~self.left | (step + 1 < counts)
            one = lists[:, step], self.scores[:, step], self.liked[:, step]
            worth.append(self._note(retention, *one, here)[self.shown[:, step]])
        nothing = torch.full((len(counts),), -1)
        self._note(retention, nothing, torch.zeros(len(counts)), nothing > 0, ~self.left)
        return torch.cat(worth)

    def _note(
        self, retention: RetentionModel, lists: Tensor, scores: Tensor, liked: Tensor, here: Tensor
    ) -> Tensor:
        sides = [scores.masked_fill(lists != column, -torch.inf) for column in (2, 3)]
        best_and_shown = torch.cat([self.best, torch.stack(sides, dim=1)], dim=1)
        items = retention.valued(best_and_shown, COLUMNS)
        worth = 1 + retention.gains(items)
        retention.note(items, lists[:, None], liked[:, None], here)
        return worth

    def responses(self) -> ResponseHistory:
        """Where the users stand at the end."""
        responses = ResponseHistory(self.history)
        responses.see(self.lists, self.liked)
        return responses


def learned_from(
    parts: list[OfflineReplay], *, gamma: float = GAMMA, seed: int = 0
) -> tuple[dict[str, Tensor], WorthRange]:
    """What a like is worth by state, learned from all users together, and at their showings.

    Probabilities come first: the state has that of the best item.
    """
    probabilities = RetentionModel(0.0, seed=seed)
    for part in parts:
        part.run(probabilities)
    probabilities.learn()
    retention = restored(gamma, {"probabilities": probabilities.tensors()["probabilities"]}, seed)
    for part in parts:
        part.run(retention)
    retention.learn(going_on=len(parts))  # who is there at the end of a record goes on
    learned = learned_part(retention)
    worth = [part.run(restored(gamma, learned)) for part in parts]
    return learned, WorthRange.from_values(torch.cat(worth))


def learn_from_answers(
    model: Recommender,
    log: Interactions,
    record: ResponseLog,
    *,
    away: float,
    gamma: float = GAMMA,
    seed: int = 0,
) -> FittedRetention:
    """What a like is worth by state, from a record of answers to showings.

    model: fitted on the log, whose probabilities tell how much a user likes.
    away: days at the end of the record in which somebody who left was shown nothing.
    """
    left = torch.from_numpy(record.left(away))
    states = before_record(log, record, model.queue_length)
    blocks = list(_blocks(torch.from_numpy(record.counts), len(model.sensitive_)))
    parts = [offline_replay(model, states.only(rows), record, rows, left[rows]) for rows in blocks]
    learned, usual = learned_from(parts, gamma=gamma, seed=seed)
    ends = [part.responses().tensors() for part in parts]
    users = tuple(record.ids[row] for row in torch.cat(blocks).tolist())
    responses = {name: torch.cat([end[name] for end in ends]) for name in ends[0]}
    return FittedRetention(gamma, learned, responses, users, record.until, usual)


def _blocks(counts: Tensor, n_items: int) -> Iterator[Tensor]:
    """Users with similarly many showings, so that few columns are empty."""
    most, order = rows_at_once(n_items, VALUES_AT_ONCE), counts.argsort(stable=True).tolist()
    block: list[int] = []
    for row in order:  # the last is the one with the most showings
        if block and (len(block) == most or (len(block) + 1) * int(counts[row]) > CELLS_AT_ONCE):
            yield torch.tensor(block)
            block = []
        block.append(row)
    yield torch.tensor(block)


@torch.no_grad()
def offline_replay(
    model: Recommender, states: Scenario, record: ResponseLog, rows: Tensor, left: Tensor
) -> OfflineReplay:
    """Some users of a record (b,), with what the model makes of what they were shown.

    states: of these users, before the record.
    """
    made = model.item_values(states, length=1)
    sensitive, counts = model.sensitive_.cpu(), torch.from_numpy(record.counts)
    columns = torch.arange(int(counts[rows].max()))
    shown = columns < counts[rows][:, None]
    at = ((counts.cumsum(0) - counts)[rows][:, None] + columns).clamp(max=len(record) - 1)
    items = torch.from_numpy(record.items)[at]
    known, codes = items >= 0, items.clamp(min=0)
    best = best_open(made.items, made.probabilities, sensitive)
    # An item that the model does not know was shown because somebody held it to be good: it gets
    # the score of the best item outside the group.
    scores = torch.where(known, log_odds(made.probabilities.cpu().gather(1, codes)), best[:, :1])
    assert states.taken is not None
    return OfflineReplay(
        states.taken,
        best,
        scores,
        sensitive[codes] & known,
        shown,
        torch.from_numpy(record.liked)[at] & shown,
        left,
    )


def before_record(log: Interactions, record: ResponseLog, queue_length: int) -> Scenario:
    """The users of a record with what they had taken before their first showing of it.

    Of a log without times that is everything. Who is not in the log has taken nothing.
    """
    known = {str(one): code for code, one in enumerate(log.user_ids.tolist())}
    codes = np.array([known.get(one, -1) for one in record.ids], dtype=np.int64)
    started, inside = np.full(log.n_users, -np.inf), codes >= 0
    started[codes[inside]] = record.started[inside]
    early = np.ones(len(log), dtype=np.bool_)
    if log.timestamps is not None:
        early = log.timestamps < started[log.users]
    taken = np.bincount(log.users[early], minlength=log.n_users)
    own = torch.from_numpy(np.where(inside, taken[codes], 0))
    # Who is not in the log stands in row 0 with an empty history: `own` is 0.
    users = torch.from_numpy(codes).clamp(min=0)
    past, later = UserItems.from_log(log).only(users).cut(own)
    return Scenario(past.last(queue_length), later, past, codes=users, taken=own)


# ---- Serving by what a like is worth: `value=long` outside of a long run -------------------------


def check_weighs(model: Recommender) -> None:
    """Refuse a model whose lists no worth of a user can change."""
    if not model.capabilities.worth:
        limits = ", ".join(map(str, model.limits_))
        raise ConfigError(
            f"{model.method}{f' under {limits}' if limits else ''} does not make its lists of "
            "values, so that a user's worth changes nothing (use fcpo, or a ranker with +lists)"
        )


def with_user_weights(
    model: Recommender, scenario: Scenario, retention: FittedRetention, users: Sequence[object]
) -> Scenario:
    """The scenario with the worth of its users, by their responses until the end of the record.

    users: (n_users,) their ids.
    """
    check_weighs(model)
    return replace(scenario, worth=worth_of(model, scenario, retention, users))


@torch.no_grad()
def worth_of(
    model: Recommender, scenario: Scenario, retention: FittedRetention, users: Sequence[object]
) -> Tensor:
    """(n_users,) float32, some users at a time."""
    sensitive, found = model.sensitive_.cpu(), [torch.zeros(0)]
    for rows in torch.arange(scenario.n_users).split(rows_at_once(len(sensitive), VALUES_AT_ONCE)):
        some = scenario.only(rows)
        made = model.item_values(some, length=1)
        responses = retention.responses_of([users[row] for row in rows.tolist()], _taken(some))
        found.append(
            retention.worth(responses, best_open(made.items, made.probabilities, sensitive))
        )
    return torch.cat(found)


def _taken(scenario: Scenario) -> Tensor:
    """(n_users,) how many items each has taken."""
    if scenario.taken is not None:
        return scenario.taken
    if scenario.excluded is not None:
        return scenario.excluded.indptr.diff()
    return (scenario.queue < scenario.positive.n_items).sum(1)
