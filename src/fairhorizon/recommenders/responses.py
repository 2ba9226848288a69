"""Features of users from their responses so far, and the chance that they like an item."""

from dataclasses import dataclass

import torch
from torch import Tensor

# ---- Responses so far ----------------------------------------------------------------------------
LAST = 8  # answers that are remembered one by one
FADING = (0.8, 0.9, 0.96)  # parts of earlier likes that still count after a showing
# The share of likes expected of a new user counts like so many showings of evidence. A small number
# follows the user quickly, a large one slowly; a model can weigh the two.
PRIOR = 0.15
BELIEVED = (1.0, 6.0)
USER_FEATURES = 5
CHURN_FEATURES = LAST + len(FADING) + len(BELIEVED) + 3


class ResponseHistory:
    """The answers of a batch of users, in numbers; a list counts as its places, one by one.

    history: (b,) how many items each user had taken before.
    """

    def __init__(self, history: Tensor) -> None:
        b = len(history)
        self.history = history.float().log1p()
        self.answers = torch.zeros(b, LAST)  # newest last: 1 for a like, -1 for none, 0: not yet
        self.faded = torch.zeros(b, len(FADING))
        self.since, self.stay, self.likes = torch.zeros(3, b).unbind()

    def see(self, lists: Tensor, hits: Tensor) -> None:
        """Note the answers to lists (b, K), -1 for an empty place."""
        keeps = torch.tensor(FADING)
        # Place by place, so that a list of K counts like K lists of one. Users with an empty place
        # keep everything as it was.
        for shown, liked in zip((lists >= 0).cpu().T, hits.cpu().T, strict=True):
            like = liked.float()
            newer = torch.cat([self.answers[:, 1:], (2 * like - 1)[:, None]], dim=1)
            self.answers = torch.where(shown[:, None], newer, self.answers)
            faded = self.faded * keeps + like[:, None]
            self.faded = torch.where(shown[:, None], faded, self.faded)
            since = torch.where(liked, torch.zeros_like(self.since), self.since + 1)
            self.since = torch.where(shown, since, self.since)
            self.stay = self.stay + shown
            self.likes = self.likes + like * shown

    @property
    def rates(self) -> Tensor:
        """(b, 2) the share of likes among the showings so far, with some belief in the usual."""
        believed = torch.tensor(BELIEVED)
        return (self.likes[:, None] + PRIOR * believed) / (self.stay[:, None] + believed)

    def of_users(self) -> Tensor:
        """(b, USER_FEATURES) what tells how much a user likes."""
        one = torch.ones_like(self.stay)
        return torch.stack([one, self.history, *self.rates.unbind(1), self.stay.log1p()], dim=1)

    def churn(self) -> Tensor:
        """(b, CHURN_FEATURES) what tells how near a user is to leaving."""
        numbers = [self.since.log1p(), self.stay.log1p(), self.history]
        return torch.cat([self.answers, self.faded, self.rates, torch.stack(numbers, 1)], dim=1)

    def tensors(self) -> dict[str, Tensor]:
        return dict(vars(self))

    def restore(self, tensors: dict[str, Tensor]) -> None:
        for name in vars(self):
            setattr(self, name, tensors[name].clone())


def see_many(responses: ResponseHistory, shown: Tensor, liked: Tensor) -> None:
    """Note answers to K showings of each user, oldest first: `see` in closed form, without a loop.

    shown: (b, K) bool, False after the last showing of a user.  liked: (b, K) bool.
    """
    n, place = shown.sum(1), torch.arange(shown.shape[1])
    like = (liked & shown).float()
    # The last LAST answers of old and new together: the window moves on by n, the showings of the
    # user.
    signs = torch.cat([responses.answers, 2 * like - 1], dim=1)
    responses.answers = signs.gather(1, n[:, None] + torch.arange(LAST))
    keeps = torch.tensor(FADING)
    # A like at place k fades once for every later showing; the old sum fades n times.
    left = keeps ** (n[:, None] - 1 - place).clamp(min=0)[:, :, None]  # (b, K, FADING)
    responses.faded = responses.faded * keeps ** n[:, None] + (like[:, :, None] * left).sum(1)
    last = (like * (place + 1)).amax(1)  # the place of the last like, from 1
    responses.since = torch.where(last > 0, n - last, responses.since + n)
    responses.stay = responses.stay + n
    responses.likes = responses.likes + like.sum(1)


# ---- Exposure to categories of items: what may have tired or bored users -------------------------
# How long a showing tires and how many showings bore is for whoever learns from these to find out,
# so there are several time scales of both.
FADES = (0.5, 0.8, 0.95)  # parts of earlier showings that still count one step later
REMEMBERED = 20  # last showings whose kinds are known one by one


class CategoryExposure:
    """The kinds of what a batch of users was shown.

    kinds: (n_items, kinds) the part that each kind has in an item; None: they are not known.
    """

    def __init__(self, kinds: Tensor | None, users: int) -> None:
        self.kinds = torch.zeros(0, 1) if kinds is None else kinds
        # (n_items,) the main kind of each, -1 for an item without one
        self.main = torch.where(self.kinds.any(1), self.kinds.argmax(1), -1)
        self.faded = torch.zeros(users, self.kinds.shape[1], len(FADES))  # showings of each kind
        self.recent = torch.full((users, REMEMBERED), -1)  # main kinds, newest last

    @property
    def are_known(self) -> bool:
        return len(self.kinds) > 0

    def see(self, lists: Tensor) -> None:
        """Note lists (b, K), -1 for an empty place."""
        if not self.are_known:
            return
        # Time passes once per step, however many places the list has.
        self.faded = self.faded * torch.tensor(FADES)
        for items in lists.cpu().T:
            shown, at = items >= 0, items.clamp(min=0)
            self.faded = self.faded + (self.kinds[at] * shown[:, None])[:, :, None]
            newer = torch.cat([self.recent[:, 1:], self.main[at][:, None]], dim=1)
            self.recent = torch.where(shown[:, None], newer, self.recent)

    def tiring(self, weights: Tensor) -> Tensor:
        """(b, n_items) sum_f weights_f times showings of the kinds of an item that faded so."""
        return (self.faded @ weights) @ self.kinds.T if self.are_known else torch.zeros(1, 1)

    def of_items(self, items: Tensor) -> Tensor:
        """(b, C, fades) showings of the kinds of items (b, C), one row of them for each user."""
        if not self.are_known:
            return torch.zeros(*items.shape, len(FADES))
        return self.kinds[items] @ self.faded

    def counts(self, items: Tensor) -> Tensor:
        """(b, REMEMBERED) of the last 1, 2, ... showings, with one of items (b,) as the last: how
        many are of its main kind; 0 for an item without one."""
        if not self.are_known:
            return torch.zeros(len(items), REMEMBERED)
        own = self.main[items][:, None]
        # Newest first: with the item in question in front, running sums are counts of the last 1,
        # 2, ....
        same = torch.cat([own, self.recent.flip(1)[:, :-1]], dim=1) == own
        return (same & (own >= 0)).float().cumsum(1)

    def counts_by_kind(self, window: int) -> Tensor:
        """(b, kinds) how many of `window` showings would be of a kind if the next one were.

        window: number of showings, the next one included.
        """
        own = torch.arange(self.faded.shape[1])
        same = self.recent[:, REMEMBERED - window + 1 :, None] == own
        return 1.0 + same.sum(1)

    def tensors(self) -> dict[str, Tensor]:
        return {"faded": self.faded, "recent": self.recent}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        self.faded, self.recent = tensors["faded"].clone(), tensors["recent"].clone()


# ---- The chance of a like, calibrated on answers -------------------------------------------------
#     P(u likes i) = sigmoid(v . x_u + w s_ui + g 1[i in G0] - l . faded_ui),    w > 0
#
# So among items of a group and kind the order of the scores stays, and the
# probabilities of different users can be compared.

ITEM_FEATURES = 2 + len(FADES)  # score, in the group, showings of the kinds that faded
L2 = 1.0  # weight of the penalty, in units of one answer
LEAST_SLOPE = 0.02  # of the score: an item with a higher score is never less likely
NEWTON_STEPS = 30


@dataclass(frozen=True)
class Shown:
    """Items that were shown, one row each, and the answers."""

    of_users: Tensor  # (n, USER_FEATURES)
    of_items: Tensor  # (n, ITEM_FEATURES)
    liked: Tensor  # (n,) bool


class LikeProbabilities:
    """Weights of the features; before the first fit there are none."""

    def __init__(self) -> None:
        self.weights = torch.zeros(0)

    @property
    def is_fitted(self) -> bool:
        return len(self.weights) > 0

    def fit(self, shown: Shown) -> None:
        """Maximum likelihood with a small penalty, by Newton's method."""
        x = torch.cat([shown.of_users, shown.of_items], dim=1).double()
        y, slope = shown.liked.double(), USER_FEATURES
        weights = _newton(x, y)
        # The order of the scores stays, whatever a few noisy answers say: the slope is held at its
        # least value, and the other weights are fitted given that.
        if weights[slope] < LEAST_SLOPE:
            rest = [n for n in range(x.shape[1]) if n != slope]
            weights[rest] = _newton(x[:, rest], y, LEAST_SLOPE * x[:, slope])
            weights[slope] = LEAST_SLOPE
        self.weights = weights.float()

    @property
    def of_fades(self) -> Tensor:
        """(fades,) what showings of the kinds of an item add to its log-odds."""
        return self.weights[USER_FEATURES + 2 :]

    def predict(self, of_users: Tensor, score: Tensor, in_group: Tensor, tiring: Tensor) -> Tensor:
        """(b, n) probabilities; score: (b, n), the other two of a shape that fits to it.

        tiring: what showings of the kinds of the items add to the log-odds.
        """
        user, (w, group) = self.weights[:USER_FEATURES], self.weights[USER_FEATURES:][:2]
        logits = (of_users @ user)[:, None] + group * in_group + tiring
        return torch.sigmoid(torch.addcmul(logits, score, w.expand(1, 1)))

    def of_recorded(self, of_users: Tensor, of_items: Tensor) -> Tensor:
        """(b, C) probabilities of items (b, C, ITEM_FEATURES)."""
        tiring = of_items[:, :, 2:] @ self.of_fades
        return self.predict(of_users, of_items[:, :, 0], of_items[:, :, 1], tiring)


def _newton(x: Tensor, y: Tensor, offset: Tensor | float = 0.0) -> Tensor:
    """Minimise  -log likelihood + L2/2 |w|^2  with logits x w + offset."""
    w = torch.zeros(x.shape[1], dtype=x.dtype)
    penalty = L2 * torch.eye(x.shape[1], dtype=x.dtype)
    for _ in range(NEWTON_STEPS):
        # The penalty keeps the Hessian positive definite, so that there is always a step.
        p = torch.sigmoid(x @ w + offset)
        gradient = x.T @ (p - y) + penalty @ w
        step = torch.linalg.solve((x * (p * (1 - p))[:, None]).T @ x + penalty, gradient)
        w = w - step
        if step.abs().max() < 1e-8:
            break
    return w
