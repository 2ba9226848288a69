"""A crew on Ray: an actor for each rank. Imported by nothing but the engine on Ray."""

import pickle
import queue
import threading
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import ray
import torch.distributed as dist
from ray.exceptions import RayError

from fairhorizon.agents.crew import PATIENCE, CrewMember, Meeting
from fairhorizon.engines.crews import Failure, Message, RankFailed, RankRow, watched, worked
from fairhorizon.engines.surroundings import Surroundings
from fairhorizon.engines.worker import pickled
from fairhorizon.errors import ConfigError

R = TypeVar("R")
CUT_OFF = "was lost with the connection to the cluster"
GONE = "was lost with its process or its node, perhaps for want of memory"


@dataclass(frozen=True)
class RayCrew:
    """Actors, spread over the nodes; where the cluster has as many GPUs, each has one."""

    size: int
    own: Surroundings
    needs: dict[str, Any]  # of an actor
    begin: Callable[[], None]  # connects to Ray
    parcel: Callable[[bytes], Any]  # a message as an argument
    patience: float = PATIENCE  # seconds that a rank waits for the others

    def rows(self, members: Sequence[CrewMember[R]]) -> Generator[R]:
        self.begin()
        gpus: dict[str, Any] = (
            {"num_gpus": 1} if ray.cluster_resources().get("GPU", 0) >= self.size else {}
        )
        actor = ray.remote(max_restarts=0, scheduling_strategy="SPREAD", **gpus, **self.needs)(
            FarRank
        )
        ranks: list[Any] = [actor.remote(self.own) for _ in members]
        try:
            yield from watched(_Calls(ranks, self._begun(ranks, members, bool(gpus))), self.size)
        finally:
            if ray.is_initialized():  # else they ended with it
                for rank in ranks:
                    ray.kill(rank)

    def _begun(
        self, ranks: Sequence[Any], members: Sequence[CrewMember[R]], gpus: bool
    ) -> list[Any]:
        """What each rank owes: its first message."""
        device, owed = "cuda:0" if gpus else "cpu", []
        # an answer that is not there yet is an argument too: nobody waits here, where all can fail
        meeting = ranks[0].meeting.remote(self.size, device, self.patience)
        for number, (rank, member) in enumerate(zip(ranks, members, strict=True)):
            rank.work.remote(self.parcel(pickled(member)), meeting, number)
            owed.append(rank.message.remote())
        return owed


class FarRank:
    """A rank in an actor: it works in a thread, and messages are fetched."""

    def __init__(self, own: Surroundings) -> None:
        self.own = own
        self.messages: queue.Queue[bytes] = queue.Queue()

    def meeting(self, size: int, device: str, patience: float) -> Meeting:
        """Of a crew that meets here."""
        host, wait = ray.util.get_node_ip_address(), timedelta(seconds=patience)
        self.store = dist.TCPStore(  # type: ignore[attr-defined]
            host, 0, is_master=True, wait_for_workers=False, timeout=wait
        )
        return Meeting(0, size, host, self.store.port, device, patience)

    def work(self, parcel: bytes, meeting: Meeting, rank: int) -> None:
        """Begin the work of a pickled member."""
        place = meeting.of(rank)

        def run() -> None:
            for message in worked(parcel, place):
                self.messages.put(message)

        try:
            self.own.enter()
        except ConfigError as error:
            self.messages.put(pickled(RankFailed(Failure.OURS, str(error))))
            return
        threading.Thread(target=run, daemon=True).start()

    def message(self) -> bytes:
        return self.messages.get()


class _Calls:
    """Calls that ranks owe an answer to: the next message of each."""

    def __init__(self, ranks: Sequence[Any], owed: Sequence[Any]) -> None:
        self.ranks = ranks
        self.owed = {reference: rank for rank, reference in enumerate(owed)}

    def receive(self, timeout: float | None) -> Sequence[tuple[int, Message]]:
        try:
            ready, _ = ray.wait(list(self.owed), timeout=timeout)
        except ConnectionError:  # of a client, which then has none of them
            lost = RankFailed(Failure.LOST, CUT_OFF)
            return [(rank, lost) for rank in self.owed.values()]
        received: list[tuple[int, Message]] = []
        for reference in ready:
            rank = self.owed.pop(reference)
            message = _message(reference)
            if isinstance(message, RankRow):
                self.owed[self.ranks[rank].message.remote()] = rank
            received.append((rank, message))
        return received


def _message(reference: Any) -> Message:
    try:
        message: Message = pickle.loads(ray.get(reference))
    except RayError:
        return RankFailed(Failure.LOST, GONE)
    return message
