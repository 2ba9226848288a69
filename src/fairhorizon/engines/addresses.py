"""Addresses of Ray clusters: what is seen before Ray is asked, and what is said where it fails."""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fairhorizon.engines.engine import AGAIN, ATTEMPTS
from fairhorizon.errors import ConfigError, FairHorizonError

CLIENT = "ray://"  # of a machine that is not part of the cluster
TRACEBACK = "Traceback (most recent call last)"
REMEDY = "start a cluster with `ray start --head`, or leave out --address"
REMEDY_OF_CLIENT = (
    "start a cluster with `ray start --head`; the port for ray:// is its "
    "--ray-client-server-port, 10001 without that"
)


def connect_to(address: str, connect: Callable[[], object]) -> None:
    """Connect to the cluster at an address; a ConfigError where it cannot be done."""
    try:
        knock(address)
        persistently(connect)
    except (OSError, ValueError, RuntimeError) as error:
        remedy = REMEDY_OF_CLIENT if address.startswith(CLIENT) else REMEDY
        raise ConfigError(f"--address {address}: {_essence(error)} ({remedy})") from error


def knock(address: str) -> None:
    """Raise an OSError where nobody listens: Ray itself would try for minutes."""
    host, colon, port = address.removeprefix(CLIENT).rpartition(":")
    if colon and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
    elif address.startswith(CLIENT):
        raise ValueError("has no port")


def persistently(connect: Callable[[], object]) -> None:
    """Connect, again if the far side has given up.

    A cluster forks a process for every client out of one with threads, which fails now and then
    (github.com/ray-project/ray/issues/63202). Whoever asks again gets another process.
    """
    for _ in range(ATTEMPTS - 1):
        try:
            connect()
        except ConnectionAbortedError:
            continue
        return
    connect()


@contextmanager
def connected(goes_on: str = AGAIN) -> Iterator[None]:
    """Ask the cluster for something here; of a client, the connection can be lost."""
    try:
        yield
    except ConnectionError as error:
        raise FairHorizonError(f"the connection to the cluster was lost ({goes_on})") from error


def _essence(error: Exception) -> str:
    """On one line; of the traceback of a far process, the error at its end."""
    text = str(error).strip()
    return text.splitlines()[-1] if TRACEBACK in text else " ".join(text.split())
