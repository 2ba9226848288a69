"""The churn of simulated users: patience that runs out, and appeal that wears off.

Patience is counted in likes. A user whose patience is at most M likes begins with floor(M / 2) + 1
of them. A like adds 1, up to M, and a showing that is not liked takes 1 / `like_adds`. At 0 the
user leaves. So with `like_adds` 1 a like makes up for one showing that was not liked.

A recommender sees none of this but the answers, and who is there (`here`).
"""

from dataclasses import dataclass

import torch
from pydantic import Field, model_validator
from torch import Tensor
from torch.nn.functional import one_hot

from fairhorizon.settings import Settings

SPREAD = 0.5  # patience differs between users: M is drawn from M (1 - SPREAD) to M (1 + SPREAD)
LEAST = 2.0  # likes that everybody can be patient for
KINDS = "genre"  # the column with the kinds of items, if none is named


class QuitRule(Settings):
    """A user quits when more than `most` of the last `of` items are of one kind.

    The rule of the environments of KuaiEnv and EasyRL4Rec.
    """

    most: int = Field(ge=1)
    """Largest number of items of one kind that a user stands."""
    of: int = Field(ge=2)
    """Number of last items that are looked at."""

    @model_validator(mode="after")
    def _can_happen(self) -> "QuitRule":
        if self.most >= self.of:
            raise ValueError(f"more than {self.most} of the last {self.of} never are of one kind")
        return self


class ChurnConfig(Settings):
    """Settings of users who can leave."""

    patience: float | None = Field(None, ge=LEAST)
    """Mean over users of M, the most patience that they can have, in likes; None: they stay."""
    like_adds: float | None = Field(None, gt=0)
    """How many other showings a like makes up for; None: it is calibrated."""
    returning: float = Field(0.0, ge=0, le=1)
    """Chance per step that a user who left fully content comes back."""
    satiation: float = Field(0.0, ge=0)
    """What a showing takes off the log-odds of a like for items of the same kind, at first."""
    recovery: float = Field(0.9, ge=0, lt=1)
    """Part of the satiation that is left after a step."""
    by: str = KINDS
    """Column of the items with their kinds, for satiation and boredom."""
    quits: QuitRule | None = None
    """When boredom makes a user quit; None: never."""
    seed: int = 0
    """Of what users are like: the same for everybody who serves them."""

    @property
    def needs_kinds(self) -> bool:
        return self.satiation > 0 or self.quits is not None

    def drawn_patience(self, n_users: int) -> "Patience":
        """The patience of all users at the start."""
        # A generator of its own: whoever serves the users, and whatever else is drawn, they are
        # the same users.
        own = torch.Generator().manual_seed(self.seed)
        return Patience.drawn(self.patience or LEAST, n_users, own)


@dataclass
class Patience:
    """How much patience is left of each user, in likes."""

    most: Tensor  # (b,) float64
    left: Tensor  # (b,)

    @classmethod
    def drawn(cls, mean: float, users: int, generator: torch.Generator) -> "Patience":
        """Each user's own, around the mean."""
        draws = torch.rand(users, dtype=torch.float64, generator=generator)
        most = (mean * (1 + SPREAD * (2 * draws - 1))).clamp(min=LEAST)
        return cls(most, start_of(most))

    def answer(self, liked: Tensor, others: Tensor, like_adds: float) -> None:
        """Update what is left.

        liked, others: (b,) showings of a step that were liked, and that were not.
        """
        change = liked - others / like_adds
        self.left = torch.minimum(self.most, self.left + change).clamp(min=0)


def start_of(most: Tensor) -> Tensor:
    """(b,) what users begin with, and come back with."""
    return (most / 2).floor() + 1


def share_staying(liked: Tensor, shown: Tensor, most: Tensor, like_adds: float) -> float:
    """The share of users who would still be there after T steps.

    liked, shown: (T, b) how many items each user liked in a step, and was shown.
    most: (b,) M of each user.
    """
    patience, here = Patience(most, start_of(most)), torch.ones_like(most, dtype=torch.bool)
    for likes, showings in zip(liked.double(), shown.double(), strict=True):
        patience.answer(likes, showings - likes, like_adds)
        # Who has left once is gone, even if later likes would have filled the patience again.
        here &= patience.left > 0
    return float(here.double().mean())


def calibrated_like_adds(liked: Tensor, shown: Tensor, most: Tensor, share: float = 0.5) -> float:
    """The least number of showings that a like has to make up for so that this share stays.

    liked, shown: (T, b) of users who were served whatever they answered.
    """
    low, high = 0.0, 1.0
    # More showings for a like keep more users, so bisection applies, once an upper bound is found.
    while share_staying(liked, shown, most, high) < share:
        low, high = high, 2 * high
    while high - low > 1e-3 * high:
        middle = (low + high) / 2
        if share_staying(liked, shown, most, middle) < share:
            low = middle
        else:
            high = middle
    return high


class ChurnModel:
    """Patience, absence and satiation of a batch of users.

    One number is drawn for every user and step, whatever is shown: recommenders compared under one
    seed get the same ones.
    """

    def __init__(
        self,
        config: ChurnConfig,
        patience: Patience,
        kinds: Tensor | None,
        generator: torch.Generator,
    ) -> None:
        """patience: of the users of the batch.

        kinds: (n_items, kinds) the part that each kind has in an item, rows that add up to 1.
        """
        self.config, self.kinds, self.generator = config, kinds, generator
        self.patience = patience
        b, device = len(patience.most), patience.most.device
        self.here = torch.ones(b, dtype=torch.bool, device=device)
        self.liked = torch.zeros(b, dtype=torch.float64, device=device)  # in this stay
        self.others = torch.zeros_like(self.liked)
        n_kinds = 0 if kinds is None else kinds.shape[1]
        self.sated = torch.zeros(b, n_kinds, device=device)
        window = 0 if config.quits is None else config.quits.of
        self.recent = torch.full((b, window), -1, device=device)  # items, newest last

    def appetite(self, lists: Tensor) -> Tensor | float:
        """(b, K) what satiation takes off the log-odds of the items; 0 where there is none."""
        if self.kinds is None or not self.config.satiation:
            return 0.0
        return self.config.satiation * torch.einsum(
            "bkj,bj->bk", self.kinds[lists.clamp(min=0)], self.sated
        )

    def notice(self, lists: Tensor, hits: Tensor) -> None:
        """Let the users who are there react to their lists (b, K): some leave."""
        shown = (lists >= 0) & self.here[:, None]
        liked = (hits & shown).sum(1).double()
        others = shown.sum(1).double() - liked
        self.liked, self.others = self.liked + liked, self.others + others
        if self.config.patience is not None:
            self.patience.answer(liked, others, self.like_adds)
            self.here = self.here & (self.patience.left > 0)
        if self.kinds is None:
            return
        self.sated = self.sated + (self.kinds[lists.clamp(min=0)] * shown[:, :, None]).sum(1)
        if (rule := self.config.quits) is not None:
            self.recent = _pushed(self.recent, lists, shown)
            self.here = self.here & (self._most_of_a_kind() <= rule.most)

    def pass_time(self) -> None:
        """Satiation wears off, and some come back."""
        self.sated = self.config.recovery * self.sated
        # Drawn for everybody, also for those who are here: the draws of later steps then do not
        # depend on who left, and runs of different recommenders can be compared.
        draws = torch.rand(len(self.here), dtype=torch.float64, generator=self.generator)
        back = ~self.here & (draws.to(self.liked) < self.config.returning * self.contentment)
        self.here = self.here | back
        start = start_of(self.patience.most)
        self.patience.left = torch.where(back, start, self.patience.left)
        # Who comes back begins a new stay, with an empty record.
        self.liked, self.others = (n.masked_fill(back, 0.0) for n in (self.liked, self.others))
        # The quit rule looks at the items of this stay only.
        self.recent = self.recent.masked_fill(back[:, None], -1)

    @property
    def like_adds(self) -> float:
        return self.config.like_adds or 1.0

    @property
    def contentment(self) -> Tensor:
        """(b,) from 0 to 1: what the likes of this stay made up for of the other showings."""
        return (self.liked * self.like_adds / self.others.clamp(min=1)).clamp(max=1)

    def _most_of_a_kind(self) -> Tensor:
        """(b,) how many of the recent items are of the kind that most of them are of."""
        assert self.kinds is not None
        # An item of several kinds counts for its main one; items without kinds and empty entries,
        # -1, for none.
        items = self.recent.clamp(min=0)
        main, has_kind = self.kinds.argmax(1)[items], self.kinds.any(1)[items] & (self.recent >= 0)
        counts = one_hot(main, self.kinds.shape[1]) * has_kind[:, :, None]
        return counts.sum(1).amax(1)

    def tensors(self) -> dict[str, Tensor]:
        return {
            "patience": self.patience.left,
            "here": self.here,
            "liked": self.liked,
            "others": self.others,
            "sated": self.sated,
            "recent": self.recent,
        }

    def restore(self, tensors: dict[str, Tensor]) -> None:
        device = self.here.device
        self.patience.left = tensors["patience"].to(device)
        for name in ("here", "liked", "others", "sated", "recent"):
            setattr(self, name, tensors[name].to(device))


def _pushed(recent: Tensor, lists: Tensor, shown: Tensor) -> Tensor:
    """The window after these lists; who was shown nothing keeps theirs."""
    line = torch.cat([recent, lists.masked_fill(~shown, -1)], dim=1)
    # A stable sort moves the empty entries to the front and keeps the items in order of time.
    order = torch.sort((line >= 0).to(torch.uint8), dim=1, stable=True).indices
    return line.gather(1, order[:, lists.shape[1] :])
