"""What a recommender can know of the mood of users: their answers so far, and who is there."""

import torch
from torch import Tensor

LAST = 8  # answers that are remembered one by one
FADING = (0.8, 0.9, 0.96)  # parts of earlier likes that still count after a showing
PRIOR = 0.15  # share of likes that a newcomer is expected to give,
BELIEVED = (1.0, 6.0)  # as if seen in so many showings: a quick and a slow estimate
USER_FEATURES = 5
MOODS = LAST + len(FADING) + len(BELIEVED) + 3


class AnswersSoFar:
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

    def moods(self) -> Tensor:
        """(b, MOODS) what tells how near a user is to leaving."""
        numbers = [self.since.log1p(), self.stay.log1p(), self.history]
        return torch.cat([self.answers, self.faded, self.rates, torch.stack(numbers, 1)], dim=1)

    def tensors(self) -> dict[str, Tensor]:
        return dict(vars(self))

    def restore(self, tensors: dict[str, Tensor]) -> None:
        for name in vars(self):
            setattr(self, name, tensors[name].clone())
