"""`fairhorizon serve` as a process of its own, on a free port."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from local_postgres import free_port

PATIENCE = 120.0  # seconds
COMMAND = [sys.executable, "-m", "fairhorizon"]


def command(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """A command that ends by itself."""
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, timeout=PATIENCE, check=False
    )


@dataclass
class LiveServer:
    """A server with everything that it prints in a file."""

    process: "subprocess.Popen[bytes]"
    port: int
    log: Path
    scheme: str = "http"
    verify: Any = True

    @classmethod
    def start(cls, log: Path, *arguments: str, scheme: str = "http", verify: Any = True) -> Any:
        """Returns when it answers."""
        port = free_port()
        with log.open("ab") as printed:
            process = subprocess.Popen(
                [*COMMAND, "serve", "--port", str(port), *arguments],
                stdout=printed,
                stderr=printed,
                start_new_session=True,  # so that it can be ended with its workers
            )
        server = cls(process, port, log, scheme, verify)
        until = time.monotonic() + PATIENCE
        while not server.is_ready():
            assert process.poll() is None, log.read_text(encoding="utf-8")
            assert time.monotonic() < until, log.read_text(encoding="utf-8")
            time.sleep(0.1)
        return server

    def is_ready(self) -> bool:
        try:
            return self.call("GET", "/api/health/ready").status_code == 200
        except httpx.TransportError:
            return False

    def call(self, method: str, path: str, **more: Any) -> httpx.Response:
        """One request on a connection of its own."""
        address = f"{self.scheme}://localhost:{self.port}{path}"
        return httpx.request(method, address, verify=self.verify, timeout=60, **more)

    def stop(self) -> int:
        """As a service manager stops it; what the process ends with."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)

    def kill(self) -> None:
        """All of it at once, as a power cut would."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(PATIENCE)

    def printed(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")
