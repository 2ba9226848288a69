"""The account of a simulated fleet, and what is true of its lists.

Rules are those of the service (service/budget): who may have how much is not written a second time.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from fairhorizon.service.budget.leases import granted, is_low
from fairhorizon.service.budget.rules import UNIT, Window, part_of

SizeRule = Callable[[int, int, int], int]  # slack, replicas, used lately: the size of a lease


class FencedError(Exception):
    """The replica was taken for dead."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a replica knows after a transaction; in units."""

    window: str
    left: int  # of its lease
    size: int  # that its lease should have
    shown: int
    used: int


@dataclass
class Account:
    """Budget of one group in the database: one transaction after the other."""

    share: int  # in millionths
    slack: int
    window: Window
    size: SizeRule
    shown: int = 0
    used: int = 0
    charged: int = 0
    name: str = ""  # of the present window
    held: dict[int, int] = field(default_factory=dict)  # leases by replica; its keys are alive

    def join(self, replica: int) -> None:
        self.held[replica] = 0

    def settle(self, replica: int, used: int, shown: int, lately: int, now: float) -> Seen:
        """Count what a replica has shown, and fill up its lease."""
        if replica not in self.held:
            raise FencedError
        self._turn(now)
        left, size = self.held[replica] - used, self.size(self.slack, len(self.held), lately)
        grant = 0
        if used or is_low(left, size):
            grant = granted(
                self.share,
                self.slack,
                charged=self.charged,
                left=left,
                size=size,
                before=self.shown,
                shown=self.shown + shown,
            )
        self.held[replica] = left + grant
        self.charged += grant
        self.shown += shown
        self.used += used
        return Seen(self.name, left + grant, size, self.shown, self.used)

    def end(self, replica: int, used: int = 0, shown: int = 0) -> None:
        """Give back the lease of a replica that is gone; first what it had not reported counts."""
        left = self.held.pop(replica, None)
        if left is not None:
            self.charged -= left - used
            self.used += used
            self.shown += shown

    def _turn(self, now: float) -> None:
        """Begin a new window if the present one is full; leases of the old one end with it."""
        name = self.window.name(now, self.name or None, self.shown)
        if name != self.name:
            self.name, self.shown, self.used, self.charged = name, 0, 0, 0
            self.held = dict.fromkeys(self.held, 0)


@dataclass
class Truth:
    """All recorded lists, one after the other, as somebody who sees everything counts them."""

    share: int
    slack: int
    window: str = ""
    shown: int = 0
    used: int = 0
    wanted: int = 0
    worst: float = 0.0  # units above the share after any list
    budget: int = 0  # that windows before had
    spent: int = 0  # of it

    def count(self, window: str, length: int, wanted: int, given: int) -> None:
        """One list. It must not exceed share * shown + C."""
        if window != self.window:
            self._close(window)
        self.wanted += wanted * UNIT
        self.shown += length * UNIT
        self.used += given * UNIT
        above = self.used - self.share * self.shown / UNIT
        if above > self.worst:
            self.worst = above
            assert above <= self.slack, f"{above / UNIT} showings above the share: more than C"

    def _close(self, window: str) -> None:
        self.budget += min(part_of(self.share, self.shown), self.wanted)
        self.spent += self.used
        self.window, self.shown, self.used, self.wanted = window, 0, 0, 0

    def unused(self) -> float:
        """Part of the budget that lists wanted and that nobody had at the end of its window."""
        self._close(self.window)
        return max(0.0, 1 - self.spent / max(1, self.budget))
