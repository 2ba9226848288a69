"""What every node of the cluster of tests is like, and where its clients connect."""

import socket
from typing import Any

NODE: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 80 * 2**20}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


CLIENT_PORT = free_port()  # for ray://
