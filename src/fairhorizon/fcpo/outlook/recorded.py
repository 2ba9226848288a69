"""Learning from a record of answers: its users are replayed side by side, showing by showing.

The chance of a like is logistic in the log-odds of the model's own chances, which are those of the
user's history before the record, and in the user's answers so far (chances.py).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fairhorizon.data.answers import AnswerRecord
from fairhorizon.data.interactions import Interactions
from fairhorizon.fcpo.outlook.learned import (
    LearnedOutlook,
    UsualWorth,
    best_open,
    learned_part,
    log_odds,
    restored,
)
from fairhorizon.fcpo.outlook.outlook import Outlook
from fairhorizon.fcpo.outlook.standing import AnswersSoFar
from fairhorizon.histories import UserItems
from fairhorizon.ranking import rows_at_once
from fairhorizon.recommenders.base import Recommender
from fairhorizon.simulation.feedback import Scenario

GAMMA = 0.99  # discount of later likes, per showing
CELLS_AT_ONCE = 2**20  # users times showings that are replayed together
VALUES_AT_ONCE = 2**22
COLUMNS = torch.tensor([0.0, 1.0, 0.0, 1.0])  # in the group: the best of either side, what is shown


@dataclass(frozen=True, eq=False)
class Replayed:
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

    def run(self, outlook: Outlook) -> Tensor:
        """Let an outlook see one showing after the other, and in the end the last state.

        Returns (n,) what it takes a like to be worth at each showing.
        """
        outlook.begin(self.history)
        lists, counts, worth = self.lists, self.shown.sum(1), []
        for step in range(self.shown.shape[1]):
            here = ~self.left | (step + 1 < counts)
            one = lists[:, step], self.scores[:, step], self.liked[:, step]
            worth.append(self._note(outlook, *one, here)[self.shown[:, step]])
        nothing = torch.full((len(counts),), -1)
        self._note(outlook, nothing, torch.zeros(len(counts)), nothing > 0, ~self.left)
        return torch.cat(worth)

    def _note(
        self, outlook: Outlook, lists: Tensor, scores: Tensor, liked: Tensor, here: Tensor
    ) -> Tensor:
        sides = [scores.masked_fill(lists != column, -torch.inf) for column in (2, 3)]
        outlook.values(torch.cat([self.best, torch.stack(sides, dim=1)], dim=1), COLUMNS)
        worth = 1 + outlook.gains()
        outlook.note(lists[:, None], liked[:, None], here)
        return worth

    def standing(self) -> AnswersSoFar:
        """Where the users stand at the end."""
        standing = AnswersSoFar(self.history)
        standing.see(self.lists, self.liked)
        return standing


def learned_from(
    parts: list[Replayed], *, gamma: float = GAMMA, seed: int = 0
) -> tuple[dict[str, Tensor], UsualWorth]:
    """What a like is worth by state, learned from all users together, and at their showings.

    Chances come first: the state has that of the best item.
    """
    chances = Outlook(0.0, seed=seed)
    for part in parts:
        part.run(chances)
    chances.learn()
    outlook = restored(gamma, {"chances": chances.tensors()["chances"]}, seed)
    for part in parts:
        part.run(outlook)
    outlook.learn(going_on=len(parts))  # who is there at the end of a record goes on
    learned = learned_part(outlook)
    worth = [part.run(restored(gamma, learned)) for part in parts]
    return learned, UsualWorth.of(torch.cat(worth))


def learn_from_answers(
    model: Recommender,
    log: Interactions,
    record: AnswerRecord,
    *,
    away: float,
    gamma: float = GAMMA,
    seed: int = 0,
) -> LearnedOutlook:
    """What a like is worth by state, from a record of answers to showings.

    model: fitted on the log, whose chances tell how much a user likes.
    away: days at the end of the record in which somebody who left was shown nothing.
    """
    left = torch.from_numpy(record.left(away))
    states = before_record(log, record, model.queue_length)
    blocks = list(_blocks(torch.from_numpy(record.counts), len(model.sensitive_)))
    parts = [replayed(model, states.only(rows), record, rows, left[rows]) for rows in blocks]
    learned, usual = learned_from(parts, gamma=gamma, seed=seed)
    ends = [part.standing().tensors() for part in parts]
    users = tuple(record.ids[row] for row in torch.cat(blocks).tolist())
    standing = {name: torch.cat([end[name] for end in ends]) for name in ends[0]}
    return LearnedOutlook(gamma, learned, standing, users, record.until, usual)


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
def replayed(
    model: Recommender, states: Scenario, record: AnswerRecord, rows: Tensor, left: Tensor
) -> Replayed:
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
    best = best_open(made.items, made.chances, sensitive)
    # what the model does not know was shown because somebody took it for good
    scores = torch.where(known, log_odds(made.chances.cpu().gather(1, codes)), best[:, :1])
    assert states.taken is not None
    return Replayed(
        states.taken,
        best,
        scores,
        sensitive[codes] & known,
        shown,
        torch.from_numpy(record.liked)[at] & shown,
        left,
    )


def before_record(log: Interactions, record: AnswerRecord, queue_length: int) -> Scenario:
    """The users of a record with what they had taken before their first showing of it.

    Of a log without times that is everything. Who is not in the log has taken nothing.
    """
    known = {str(one): code for code, one in enumerate(log.user_ids.tolist())}
    codes = np.array([known.get(one, -1) for one in record.ids], dtype=np.int64)
    begun, inside = np.full(log.n_users, -np.inf), codes >= 0
    begun[codes[inside]] = record.begun[inside]
    early = np.ones(len(log), dtype=np.bool_)
    if log.timestamps is not None:
        early = log.timestamps < begun[log.users]
    taken = np.bincount(log.users[early], minlength=log.n_users)
    own = torch.from_numpy(np.where(inside, taken[codes], 0))
    users = torch.from_numpy(codes).clamp(min=0)
    past, later = UserItems.of(log).only(users).cut(own)
    return Scenario(past.last(queue_length), later, past, codes=users, taken=own)
