"""What can be known of users who may leave: their responses so far, and what they were shown."""

import torch
from torch import Tensor

# ---- Responses so far ----------------------------------------------------------------------------
LAST = 8  # answers that are remembered one by one
FADING = (0.8, 0.9, 0.96)  # parts of earlier likes that still count after a showing
PRIOR = 0.15  # share of likes that a new user is expected to give,
BELIEVED = (1.0, 6.0)  # as if seen in so many showings: a quick and a slow estimate
USER_FEATURES = 5
MOODS = LAST + len(FADING) + len(BELIEVED) + 3


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
        """(b, MOODS) what tells how near a user is to leaving."""
        numbers = [self.since.log1p(), self.stay.log1p(), self.history]
        return torch.cat([self.answers, self.faded, self.rates, torch.stack(numbers, 1)], dim=1)

    def tensors(self) -> dict[str, Tensor]:
        return dict(vars(self))

    def restore(self, tensors: dict[str, Tensor]) -> None:
        for name in vars(self):
            setattr(self, name, tensors[name].clone())


def see_many(standing: ResponseHistory, shown: Tensor, liked: Tensor) -> None:
    """Note answers (b, K) to showings, oldest first; of each user the first so many are shown.

    shown: (b, K) bool, False after the last one of a user.  liked: (b, K) bool.
    """
    n, place = shown.sum(1), torch.arange(shown.shape[1])
    like = (liked & shown).float()
    signs = torch.cat([standing.answers, 2 * like - 1], dim=1)
    standing.answers = signs.gather(1, n[:, None] + torch.arange(LAST))
    keeps = torch.tensor(FADING)
    left = keeps ** (n[:, None] - 1 - place).clamp(min=0)[:, :, None]  # (b, K, FADING)
    standing.faded = standing.faded * keeps ** n[:, None] + (like[:, :, None] * left).sum(1)
    last = (like * (place + 1)).amax(1)  # the place of the last like, from 1
    standing.since = torch.where(last > 0, n - last, standing.since + n)
    standing.stay = standing.stay + n
    standing.likes = standing.likes + like.sum(1)


# ---- Exposure to categories of items: what may have tired or bored users -------------------------
FORGETTING = 0.9  # of showings of a kind, per step
WINDOW = 10  # last showings whose kinds are counted one by one
KIND_FEATURES = 2


class CategoryExposure:
    """The kinds of what a batch of users was shown.

    kinds: (n_items, kinds) the part that each kind has in an item; None: they are not known.
    """

    def __init__(self, kinds: Tensor | None, users: int) -> None:
        self.kinds = torch.zeros(0, 1) if kinds is None else kinds
        self.main = self.kinds.argmax(1)  # (n_items,) the main kind of each
        self.lately = torch.zeros(users, self.kinds.shape[1])  # showings that fade
        self.window = torch.full((users, WINDOW), -1)  # main kinds of the last showings

    @property
    def are_known(self) -> bool:
        return len(self.kinds) > 0

    def see(self, lists: Tensor) -> None:
        """Note lists (b, K), -1 for an empty place."""
        if not self.are_known:
            return
        self.lately = FORGETTING * self.lately
        for items in lists.cpu().T:
            shown, at = items >= 0, items.clamp(min=0)
            self.lately = self.lately + self.kinds[at] * shown[:, None]
            newer = torch.cat([self.window[:, 1:], self.main[at][:, None]], dim=1)
            self.window = torch.where(shown[:, None], newer, self.window)

    def sated(self) -> Tensor:
        """(b, n_items) showings of the kinds of each item lately; (1, 1) where none are known."""
        return self.lately @ self.kinds.T if self.are_known else torch.zeros(1, 1)

    def features(self) -> Tensor:
        """(b, kinds, KIND_FEATURES) of items by their main kind: showings that fade, and the share
        of the kind in the window."""
        own = torch.arange(self.lately.shape[1])
        counts = (self.window[:, :, None] == own).float().mean(1)
        return torch.stack([self.lately, counts], dim=2)

    def of_items(self, items: Tensor) -> Tensor:
        """(b, C, KIND_FEATURES) of items (b, C), one row of them for each user."""
        if not self.are_known:
            return torch.zeros(*items.shape, KIND_FEATURES)
        rows = torch.arange(len(items))[:, None]
        return self.features()[rows, self.main[items]]

    def tensors(self) -> dict[str, Tensor]:
        return {"lately": self.lately, "window": self.window}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        self.lately, self.window = tensors["lately"].clone(), tensors["window"].clone()
