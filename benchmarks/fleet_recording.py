"""The two places where a simulated fleet records its lists: together, or apart."""

from fairhorizon.service.budget.leases import OverdrawnError, is_low, used_lately
from fairhorizon.service.budget.rules import UNIT
from fleet_account import FencedError, Seen
from fleet_events import Events, Replica

FASTEST = 8  # by how much a lease grows at most when it is used up early
Batch = list[tuple[float, int]]  # when each was asked for, and how much of the group it wants


class Together:
    """In the one database, as the service does: a batch is a transaction, and then answered."""

    def __init__(self, events: Events) -> None:
        self.events, self.scenario, self.account = events, events.scenario, events.account

    def arrive(self, now: float, replica: Replica, wanted: int) -> None:
        replica.waiting.append((now, wanted))
        if not replica.is_busy:
            self._begin(now, replica)

    def _begin(self, now: float, replica: Replica) -> None:
        waiting = replica.waiting
        batch = [waiting.popleft() for _ in range(min(self.scenario.batch, len(waiting)))]
        replica.is_busy = True
        self._decide(now, replica, batch)

    def _decide(self, now: float, replica: Replica, batch: Batch) -> None:
        share, length = self.account.share, self.scenario.length
        given = [replica.decide(share, length, wanted) for _, wanted in batch]
        then = now + self.scenario.deciding_ms / 1000
        self.events.message(then, replica, self._record, batch, given)

    def _record(
        self, now: float, replica: Replica, name: int, batch: Batch, given: list[int]
    ) -> None:
        """At the database; also if the replica has crashed since: then nobody is answered."""
        events, length = self.events, self.scenario.length
        end = events.transaction(now, len(batch))
        used = sum(given) * UNIT
        lately = used_lately(replica.lately, used)
        try:
            seen = self.account.settle(name, used, len(batch) * length * UNIT, lately, end)
        except (FencedError, OverdrawnError):
            if name == replica.name:
                events.message(end, replica, self._begin_anew, batch)
            return
        for (_, wanted), one in zip(batch, given, strict=True):
            events.truth.count(seen.window, length, wanted, one)
        events.lists += len(batch)
        events.sizes.append(seen.size)
        if name == replica.name:
            events.message(end, replica, self._answer, batch, seen, lately)

    def _answer(
        self, now: float, replica: Replica, name: int, batch: Batch, seen: Seen, lately: int
    ) -> None:
        if name != replica.name:
            return
        deciding = self.scenario.deciding_ms / 1000
        self.events.waits.extend(now - asked - deciding for asked, _ in batch)
        replica.see(seen)
        replica.lately, replica.is_busy = lately, False
        if replica.waiting:
            self._begin(now, replica)

    def _begin_anew(self, now: float, replica: Replica, name: int, batch: Batch) -> None:
        """It was taken for dead, or used more than a new window has: it has to open first."""
        if name == replica.name:
            self.events.message(now, replica, self._open, batch)

    def _open(self, now: float, replica: Replica, name: int, batch: Batch) -> None:
        end = self.events.transaction(now)
        if name != replica.name:
            return
        if name not in self.account.held:
            replica.name = next(self.events.names)
            self.account.join(replica.name)
        seen = self.account.settle(replica.name, 0, 0, replica.lately, end)
        self.events.message(end, replica, self._opened, batch, seen)

    def _opened(self, now: float, replica: Replica, name: int, batch: Batch, seen: Seen) -> None:
        if name == replica.name:
            replica.see(seen)
            self._decide(now, replica, batch)


class Apart:
    """With their replica, answered at once; the account hears of them with the next lease.

    A lease is void after some time without contact, before others can take it back: nothing else
    stops a replica that was taken for dead from using it.
    every: seconds between two reports at most.
    """

    def __init__(self, events: Events, every: float) -> None:
        self.events, self.scenario, self.account = events, events.scenario, events.account
        self.every = every

    def arrive(self, now: float, replica: Replica, wanted: int) -> None:
        length = self.scenario.length
        given = replica.decide(self.account.share, length, wanted)
        self.events.truth.count("always", length, wanted, given)
        self.events.lists += 1
        replica.new_used += given * UNIT
        replica.new_shown += length * UNIT
        since = now - replica.reported_at
        needs = is_low(replica.left, replica.size) and not replica.is_dry
        if not replica.is_busy and (needs or since >= self.every):
            replica.is_busy, replica.reported_at = True, now
            used, shown = replica.new_used, replica.new_shown
            pace = self.every / max(since, self.every / FASTEST)  # as if `every` were over
            lately = used_lately(replica.lately, round(pace * used))
            self.events.message(now, replica, self._report, used, shown, lately)

    def _report(
        self, now: float, replica: Replica, name: int, used: int, shown: int, lately: int
    ) -> None:
        end = self.events.transaction(now)
        if name != replica.name:
            return  # its end counts what it had shown
        try:
            seen = self.account.settle(name, used, shown, lately, end)
        except FencedError:
            used, shown = replica.new_used, replica.new_shown  # counted when it was taken for dead
            replica.name = next(self.events.names)
            self.account.join(replica.name)
            seen = self.account.settle(replica.name, 0, 0, lately, end)
        replica.new_used -= used
        replica.new_shown -= shown
        replica.is_expired = False
        self.events.sizes.append(seen.size)
        self.events.message(end, replica, self._reported, seen, lately)

    def _reported(self, _now: float, replica: Replica, name: int, seen: Seen, lately: int) -> None:
        if name != replica.name:
            return
        replica.is_busy = False
        if replica.is_expired:
            replica.reported_at = -self.every  # ask again
            return
        replica.see(seen)
        replica.left -= replica.new_used  # shown while the report was under way
        replica.used += replica.new_used
        replica.shown += replica.new_shown
        replica.lately, replica.is_dry = lately, is_low(seen.left, seen.size)
