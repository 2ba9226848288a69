"""What kinds of items users were shown lately: what may have tired or bored them."""

import torch
from torch import Tensor

FORGETTING = 0.9  # of showings of a kind, per step
WINDOW = 10  # last showings whose kinds are counted one by one
KIND_FEATURES = 2


class KindsSoFar:
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
