"""A server of the benchmark's own, and clients that load it; all on loopback."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from local_postgres import free_port

READY_WITHIN = 120.0  # seconds


class ServerEndedError(Exception):
    """The server has ended by itself."""


def _new_log() -> Path:
    handle, name = tempfile.mkstemp(prefix="fairhorizon-service-", suffix=".log")
    os.close(handle)
    return Path(name)


@dataclass
class Server:
    """`fairhorizon serve` in a process group of its own."""

    run: Path
    database: str
    workers: int = 1
    port: int = field(default_factory=free_port)
    options: Sequence[str] = ()
    log: Path = field(default_factory=_new_log)
    environment: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> float:
        """Seconds until it is ready."""
        started = time.perf_counter()
        words = [sys.executable, "-m", "fairhorizon", "serve", "--run", str(self.run)]
        words += ["--database", self.database, "--port", str(self.port)]
        words += ["--workers", str(self.workers), *self.options]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", **self.environment}
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                words, stdout=out, stderr=out, start_new_session=True, env=environment
            )
        self.wait_until_ready()
        return time.perf_counter() - started

    def wait_until_ready(self, within: float = READY_WITHIN) -> float:
        started = time.perf_counter()
        while time.perf_counter() < started + within:
            if self.process is not None and self.process.poll() is not None:
                raise ServerEndedError(self.said())
            if self.get("/api/health/ready")[0] == 200:
                return time.perf_counter() - started
            time.sleep(0.05)
        raise TimeoutError(f"not ready within {within:g} s")

    def said(self) -> str:
        """The end of what it has printed."""
        return self.log.read_text(errors="replace")[-2000:]

    def get(self, path: str) -> tuple[int, bytes]:
        return self.call("GET", path)

    def call(self, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        """Status and content; 0 where nobody answers."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, method=method)
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()
        except OSError:
            return 0, b""

    def worker_pids(self) -> list[int]:
        assert self.process is not None
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(pid) for pid in children.split()]

    def kill(self, *pids: int) -> None:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)

    def kill_all(self) -> None:
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill_all()
        self.log.unlink(missing_ok=True)


@contextlib.contextmanager
def served(server: Server) -> Iterator[Server]:
    server.start()
    try:
        yield server
    finally:
        server.stop()


class Connection:
    """HTTP/1.1 over one connection that is kept: a client that costs as little as possible."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None

    async def call(
        self, method: str, path: str, body: bytes = b""
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and content; status 0 where the connection breaks."""
        try:
            if self.writer is None:
                self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
            assert self.reader is not None
            head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n"
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            self.writer.write(head.encode() + body)
            lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            pairs = (line.partition(": ") for line in lines[1:] if line)
            headers = {name.lower(): value for name, _, value in pairs}
            content = await self.reader.readexactly(int(headers.get("content-length", 0)))
            return int(lines[0].split()[1]), headers, content
        except (OSError, asyncio.IncompleteReadError, ValueError):
            await self.close()
            return 0, {}, b""

    async def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
            with contextlib.suppress(OSError):
                await self.writer.wait_closed()
        self.reader = self.writer = None


@dataclass
class Answers:
    """What came back, and after how many seconds."""

    seconds: list[float] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    started: float = 0.0
    ended: float = 0.0

    @property
    def per_second(self) -> float:
        good = sum(status == 200 for status in self.statuses)
        return good / (self.ended - self.started)

    def quantile(self, share: float) -> float:
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


Work = Callable[[Connection], Awaitable[int]]


async def closed_loop(port: int, clients: int, works: Iterator[Work]) -> Answers:
    """Each of some clients sends the next request when the last is answered."""
    answers = Answers(started=time.perf_counter())

    async def client() -> None:
        connection = Connection(port)
        for work in works:
            started = time.perf_counter()
            answers.statuses.append(await work(connection))
            answers.seconds.append(time.perf_counter() - started)
        await connection.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    answers.ended = time.perf_counter()
    return answers


async def open_loop(port: int, rate: float, works: Sequence[Work]) -> Answers:
    """Requests come at a given rate, whether or not those before are answered.

    The time of a request runs from the moment at which it should have been sent.
    """
    answers, free = Answers(started=time.perf_counter()), list[Connection]()

    async def one(work: Work, due: float) -> None:
        connection = free.pop() if free else Connection(port)
        answers.statuses.append(await work(connection))
        answers.seconds.append(time.perf_counter() - due)
        free.append(connection)

    tasks = []
    for number, work in enumerate(works):
        due = answers.started + number / rate
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        tasks.append(asyncio.create_task(one(work, due)))
    await asyncio.gather(*tasks)
    answers.ended = time.perf_counter()
    for connection in free:
        await connection.close()
    return answers
