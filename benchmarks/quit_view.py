"""What PPO can know of the users it serves, and the item that its weights choose.

An action is a weight for each signal of an item: the standardised scores of the rankers that
`fcpo:long` weighs too, whether the item is in the limited group, how near it is to it, and how much
of its kinds the user was shown lately. The open item with the highest weighted sum is shown.
Actions are deviations from the weights that the ensemble begins with: action 0 is the ensemble
as it was fitted.
"""

import torch
from torch import Tensor

from fairhorizon.allocation.steps import OnlineControl
from fairhorizon.limits.counts import Exposure
from fairhorizon.rankers.ensemble import Ensemble
from fairhorizon.ranking import first_best
from fairhorizon.recommenders.lists.features import EnsembleFeatures
from fairhorizon.vocabulary import Labels

LAST = 8  # answers that are remembered one by one
FADING = (0.8, 0.95)  # parts of earlier likes that still count after a showing
FORGETTING = 0.9  # part of earlier showings of a kind that still counts, as for fcpo:long
SCALES = (3.0, 3.0, 20.0)  # of a weight on the group, on being near it, and on kinds lately
NUMBERS = 8  # of an observation beside answers, likes that fade and kinds
CELLS = 2**20  # users times items at once: they should stay in the cache


class View:
    """All users of a run: their signals, and what was seen of them so far.

    kinds: (n_items, kinds) the part that each kind has in an item; none of them: no such signal.
    limit: what the share of the group is compared with.
    horizon: steps of a run.
    """

    def __init__(self, panel: Ensemble, kinds: Tensor, limit: float, horizon: int) -> None:
        self.panel, self.kinds, self.limit, self.horizon = panel, kinds, limit, horizon
        self.base = torch.tensor(panel.weights, dtype=torch.float32)
        self._signals: EnsembleFeatures | None = None

    @property
    def n_weights(self) -> int:
        """Rankers, the group, being near it, kinds lately."""
        return len(self.panel.rankers) + 2 + bool(self.kinds.shape[1])

    @property
    def n_known(self) -> int:
        """Length of an observation; its first number is 1 for users who are there, else 0."""
        return 1 + LAST + len(FADING) + NUMBERS + self.kinds.shape[1]

    def begin(self, users: Tensor, queues: Tensor, taken: Tensor, group: Tensor) -> None:
        """A new run of users with these queues (b, N), who took so many items (b,) before.

        Scores of the first state are kept: a later run of the same users begins with them.
        """
        if self._signals is None or not torch.equal(users, self._users):
            self._users = users.clone()
            self._signals = EnsembleFeatures(self.panel, users, queues, group)
            self._table = _weighed(self.base, self._signals.values)
            self._first = []
        self._back_to_the_first()
        b = len(users)
        self.here = torch.ones(b, dtype=torch.bool)
        self.taken = taken.float().log1p()
        self.answers = torch.zeros(b, LAST)  # newest last: 1 for a like, -1 for none, 0: not yet
        self.faded = torch.zeros(b, len(FADING))
        self.since, self.stay, self.likes = torch.zeros(3, b).unbind()
        self.lately = torch.zeros(b, self.kinds.shape[1])

    def known(self, available: Tensor, exposure: Exposure) -> Tensor:
        """(b, n_known) of the moment; zeros for those who left.

        available: (b, n_items) bool, what may be shown.
        """
        rate = exposure.rate(Labels.RETROSPECTIVE)
        room = self.limit - rate if exposure.n_shown else 0.0
        stay = self.stay / self.horizon
        numbers = [self.since.log1p(), stay, self.taken, torch.full_like(stay, 10 * room)]
        like_rate = (self.likes + 1) / (self.stay + 8)
        best = self._best_by_group(available, exposure.sensitive)
        most = self.lately.amax(1, keepdim=True) if self.kinds.shape[1] else stay[:, None] * 0
        parts = [torch.ones(len(stay), 1), self.answers, self.faded, torch.stack(numbers, 1)]
        known = torch.cat([*parts, like_rate[:, None], best, self.lately, most], dim=1)
        return known * self.here[:, None]

    def choose(
        self,
        actions: Tensor,
        available: Tensor,
        exposure: Exposure,
        control: OnlineControl | None = None,
    ) -> Tensor:
        """(b, 1) the open item with the highest weighted sum; -1 for who left or has none.

        A control takes the price of its limit off the sums, and gives the group to whom it is
        worth most.
        """
        items, of_items = torch.full((len(actions), 1), -1), group_signals(exposure)
        table = actions.new_full(available.shape if control is not None else (0, 0), -torch.inf)
        for rows in self.rows_here():
            scores = self.scores(rows, actions[rows], of_items)
            scores.masked_fill_(~available[rows], -torch.inf)
            if control is None:
                items[rows, 0] = first_best(scores)
            else:
                table[rows] = scores
        return items if control is None else control.choose(table, exposure)

    def scores(self, rows: Tensor, actions: Tensor, of_items: Tensor) -> Tensor:
        """(len(rows), n_items) weighted sums of some users; of_items: from `group_signals`."""
        assert self._signals is not None
        n, (on_group, on_near, on_lately) = len(self.panel.rankers), SCALES
        scores = self._table[rows]
        for number, values in enumerate(self._signals.values):
            scores.addcmul_(actions[:, number, None], values[rows])
        scores.addmm_(actions[:, n : n + 2] * torch.tensor([on_group, on_near]), of_items)
        if self.kinds.shape[1]:
            weights = on_lately * actions[:, n + 2, None]
            scores.addmm_(weights * self.lately[rows], self.kinds.T)
        return scores

    def note(self, items: Tensor, hits: Tensor, queues: Tensor, here: Tensor) -> None:
        """The answers (b,) to items (b,), -1 for none; the queues and who is there after them."""
        shown, like = items >= 0, hits.float()
        newer = torch.cat([self.answers[:, 1:], (2 * like - 1)[:, None]], dim=1)
        self.answers = torch.where(shown[:, None], newer, self.answers)
        faded = self.faded * torch.tensor(FADING) + like[:, None]
        self.faded = torch.where(shown[:, None], faded, self.faded)
        since = torch.where(hits, torch.zeros_like(self.since), self.since + 1)
        self.since = torch.where(shown, since, self.since)
        self.stay, self.likes = self.stay + shown, self.likes + like
        self.lately = FORGETTING * self.lately + self.kinds[items.clamp(min=0)] * shown[:, None]
        self.here = here
        self._refresh((hits & here).nonzero().squeeze(1), queues)

    def _refresh(self, rows: Tensor, queues: Tensor) -> None:
        """Scores of users whose history has changed; those of the first state are kept."""
        signals = self._signals
        assert signals is not None
        if not len(rows):
            return
        new = rows[~self._has_changed[rows]]
        self._first.append((new, *(table[new] for table in (*signals.values, self._table))))
        self._has_changed[new] = True
        signals.refresh(rows, self._users[rows], queues[rows])
        self._table[rows] = _weighed(self.base, [values[rows] for values in signals.values])

    def _back_to_the_first(self) -> None:
        assert self._signals is not None
        for rows, *first in self._first:
            for table, own in zip((*self._signals.values, self._table), first, strict=True):
                table[rows] = own
        self._first: list[tuple[Tensor, ...]] = []
        self._has_changed = torch.zeros(len(self._users), dtype=torch.bool)

    def _best_by_group(self, available: Tensor, group: Tensor) -> Tensor:
        """(b, 2) how good the best open item outside the group is, and how much better one in it.

        By the weights of the ensemble; 0 where there is none.
        """
        best = torch.zeros(len(available), 2)
        inside, outside = group.nonzero().squeeze(1), (~group).nonzero().squeeze(1)
        for rows in self.rows_here():
            table = self._table[rows].masked_fill_(~available[rows], -torch.inf)
            popular, other = table[:, inside].amax(1), table[:, outside].amax(1)
            best[rows] = torch.stack([other, popular - other], 1).nan_to_num_(0.0, 0.0, 0.0)
        return best

    def rows_here(self) -> tuple[Tensor, ...]:
        """Users who are there, some at a time."""
        rows = self.here.nonzero().squeeze(1)
        return rows.split(max(1, CELLS // len(self.kinds)))


def group_signals(exposure: Exposure) -> Tensor:
    """(2, n_items) whether items are in the group, and how near they are: 1 in it, 0 never taken.

    What is shown often enters the group, with all its showings.
    """
    counts, group = torch.from_numpy(exposure.counts).float(), exposure.sensitive
    least = counts[group].amin().clamp(min=1) if group.any() else counts.amax().clamp(min=1)
    return torch.stack([group.float(), (counts / least).clamp(max=1)])


def _weighed(weights: Tensor, values: list[Tensor]) -> Tensor:
    """The sum of the tables (b, n_items), each times its weight."""
    table = torch.zeros_like(values[0])
    for weight, own in zip(weights, values, strict=True):
        table.addcmul_(weight, own)
    return table
