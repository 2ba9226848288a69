"""Addresses of Ray: who listens, who is asked again, and what is said."""

import socket
from types import ModuleType

import pytest
from parallel_cluster import free_port

from fairhorizon.errors import ConfigError

FAR = """Initialization failure from server:
Traceback (most recent call last):
  File "proxier.py", line 772, in Datapath
RuntimeError: Starting Ray client server failed.

"""


class Server:
    """Gives up on the first who ask."""

    def __init__(self, failures: int, error: Exception) -> None:
        self.failures, self.error, self.asked = failures, error, 0

    def connect(self) -> None:
        self.asked += 1
        if self.asked <= self.failures:
            raise self.error


def test_an_address_where_nobody_listens_is_refused_at_once(on_ray: ModuleType) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        on_ray.check_port(f"127.0.0.1:{port}")
        on_ray.check_port(f"ray://127.0.0.1:{port}")
    for address in (f"127.0.0.1:{port}", f"ray://127.0.0.1:{port}"):
        with pytest.raises(ConnectionRefusedError):
            on_ray.check_port(address)
    on_ray.check_port("auto")  # which Ray looks up by itself


@pytest.mark.parametrize(("failures", "asked"), [(0, 1), (1, 2), (2, 3)])
def test_a_client_that_is_given_up_on_asks_again(
    failures: int, asked: int, on_ray: ModuleType
) -> None:
    server = Server(failures, ConnectionAbortedError(FAR))
    on_ray.connect("auto", server.connect)
    assert server.asked == asked


def test_after_the_third_time_the_error_is_that_of_the_far_side(on_ray: ModuleType) -> None:
    server = Server(9, ConnectionAbortedError(FAR))
    with pytest.raises(ConfigError) as raised:
        on_ray.connect("auto", server.connect)
    assert server.asked == 3
    assert str(raised.value) == (
        "--address auto: RuntimeError: Starting Ray client server failed. (start a cluster with "
        "`ray start --head`, or leave out --address)"
    )


def test_other_errors_are_not_tried_again(on_ray: ModuleType) -> None:
    server = Server(9, ConnectionError("no\n  way"))
    with pytest.raises(ConfigError, match=r"^--address auto: no way \(start a cluster"):
        on_ray.connect("auto", server.connect)
    assert server.asked == 1


def test_for_a_client_the_remedy_names_its_port(on_ray: ModuleType) -> None:
    server = Server(0, ValueError())
    for address, problem in (("ray://host", "has no port"), (f"ray://localhost:{free_port()}", "")):
        with pytest.raises(ConfigError) as raised:
            on_ray.connect(address, server.connect)
        assert str(raised.value).startswith(f"--address {address}: {problem}")
        assert str(raised.value).endswith("its --ray-client-server-port, 10001 without that)")
    assert server.asked == 0
