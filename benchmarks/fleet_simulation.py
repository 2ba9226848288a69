"""A discrete-event simulation of replicas that lease one budget.

Replicas decide lists within their lease and what they last saw of the account, and send
transactions, which the database makes one after the other. Messages take time; replicas crash, are
cut off, leave and join. After every list the limit must hold up to C: the run fails otherwise.
"""

from dataclasses import dataclass

import numpy as np

from fairhorizon.service.budget.rules import UNIT, Window
from fleet_account import Account, SizeRule
from fleet_events import Events, Replica
from fleet_recording import Apart, Together
from fleet_scenario import Recording, Scenario

SIGNS = 5  # signs of life in a timeout
VOID = 0.8  # of the timeout: when a lease is void without contact
AGAIN = 0.1  # seconds, until a replica that has to leave looks whether it can


@dataclass(frozen=True)
class Outcome:
    """What one run has shown."""

    lists: int
    overshoot: float  # showings above the share after any list, at most
    unused: float  # part of the budget that was wanted
    transactions: float  # a second, under the lock
    utilisation: float  # of the lock
    wait_ms: float  # from request to answer, mean, less the time of deciding
    slow_ms: float  # the same, 99 of 100 are below
    lease: float  # showings, mean over transactions


class Fleet:
    """Replicas and their database.

    size: how large leases are.  every: seconds between reports, where lists are recorded apart.
    """

    def __init__(
        self, scenario: Scenario, size: SizeRule, seed: int = 0, *, every: float = 1.0
    ) -> None:
        self.scenario, self.draws = scenario, np.random.default_rng(seed)
        share, slack = round(UNIT * scenario.share), UNIT * scenario.slack
        self.account = Account(share, slack, Window.parse(scenario.window), size)
        self.events = Events(scenario, self.account, self.draws)
        self.recording: Together | Apart = Together(self.events)
        if scenario.recording is Recording.APART:
            if scenario.window != "always":
                raise ValueError("lists that are recorded apart are counted in one window only")
            self.recording = Apart(self.events, every)
        self.replicas = [Replica(next(self.events.names)) for _ in range(scenario.replicas)]

    def run(self) -> Outcome:
        for replica in self.replicas:
            self.account.join(replica.name)
        for replica in self.replicas:
            replica.see(self.account.settle(replica.name, 0, 0, 0, 0.0))
        for when, who, kind in self.scenario.troubles(self.draws):
            self.events.at(when, getattr(self, f"_{kind}"), self.replicas[who])
        for now, who, wanted in self.scenario.traffic(self.draws):
            self.events.until(now)
            replica = self._balanced(who)
            if replica is not None:
                self.recording.arrive(now, replica, wanted)
        self.events.until(self.scenario.seconds)
        return self._outcome()

    def _balanced(self, who: int) -> Replica | None:
        """The replica itself, or the next one that is up."""
        if self.replicas[who].is_up:
            return self.replicas[who]
        others = self.replicas[who:] + self.replicas[:who]
        return next((one for one in others if one.is_up), None)

    def _outcome(self) -> Outcome:
        events, seconds = self.events, self.scenario.seconds
        waits, truth = np.array(events.waits or [0.0]), events.truth
        return Outcome(
            events.lists,
            truth.worst / UNIT,
            truth.unused(),
            events.transactions / seconds,
            events.busy / seconds,
            1000 * float(waits.mean()),
            1000 * float(np.quantile(waits, 0.99)),
            float(np.mean(events.sizes or [0])) / UNIT,
        )

    # what goes wrong

    def _missed(self, now: float) -> float:
        """When somebody notices that a replica has been silent since now."""
        last_sign = now - self.draws.random() * self.scenario.timeout / SIGNS
        return last_sign + self.scenario.timeout + self.draws.random()

    def _crash(self, now: float, replica: Replica) -> None:
        if not replica.is_up:
            return
        name, used, shown = replica.name, replica.new_used, replica.new_shown
        replica.stop(next(self.events.names))
        self.events.at(max(now, self._missed(now)), self._reap, name, used, shown)
        self.events.at(now + self.scenario.restart, self._join, replica)

    def _reap(self, now: float, name: int, used: int, shown: int) -> None:
        self.events.transaction(now)
        self.account.end(name, used, shown)

    def _cut(self, now: float, replica: Replica) -> None:
        if not replica.is_up or now < replica.cut[1]:
            return
        end = now + self.scenario.cut
        replica.cut = (now, end)
        void, missed = now + VOID * self.scenario.timeout, self._missed(now)
        if void < end:
            self.events.at(min(void, missed), self._expire, replica, replica.name)
        if missed < end:
            self.events.at(missed, self._reap_cut, replica, replica.name)

    def _expire(self, _now: float, replica: Replica, name: int) -> None:
        if replica.name == name:
            replica.left, replica.is_expired = 0, True

    def _reap_cut(self, now: float, replica: Replica, name: int) -> None:
        """It goes on, and does not know that it was taken for dead."""
        if replica.name == name:
            self._reap(now, name, replica.new_used, replica.new_shown)
            replica.new_used = replica.new_shown = 0

    def _leave(self, now: float, replica: Replica) -> None:
        replica.is_up = False
        self._finish(now, replica, replica.name)

    def _finish(self, now: float, replica: Replica, name: int) -> None:
        """Leave in good order: what waits is answered first."""
        if replica.is_up or replica.name != name:
            return
        if replica.is_busy:
            self.events.at(now + AGAIN, self._finish, replica, name)
            return
        self._reap(now, name, replica.new_used, replica.new_shown)
        replica.stop(next(self.events.names))

    def _join(self, now: float, replica: Replica) -> None:
        if not replica.is_up and replica.name not in self.account.held:
            end = self.events.transaction(now)
            self.account.join(replica.name)
            replica.see(self.account.settle(replica.name, 0, 0, 0, end))
        replica.is_up = True
