"""A real HTTP server that takes alerts, and can refuse or delay them."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Queue
from typing import Any

WITHIN = 30  # seconds


class Listener:
    """What it was sent, in order.

    statuses: of its first answers; then it is content.
    """

    def __init__(self, statuses: tuple[int, ...]) -> None:
        self.statuses = list(statuses)
        self.received: Queue[tuple[str, str, dict[str, Any]]] = Queue()
        self.may_answer = threading.Event()
        self.may_answer.set()
        listener = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                listener.received.put((self.path, self.headers["Content-Type"], body))
                listener.may_answer.wait(WITHIN)
                status = listener.statuses.pop(0) if listener.statuses else 204
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", "/elsewhere")
                self.end_headers()

            def do_GET(self) -> None:
                listener.received.put((self.path, "GET", {}))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/alerts?token=secret"

    def next(self) -> dict[str, Any]:
        path, kind, body = self.received.get(timeout=WITHIN)
        assert (path, kind) == ("/alerts?token=secret", "application/json")
        return body


@contextmanager
def listening(*statuses: int) -> Iterator[Listener]:
    listener = Listener(statuses)
    thread = threading.Thread(target=listener.server.serve_forever, daemon=True)
    thread.start()
    yield listener
    listener.may_answer.set()
    listener.server.shutdown()
    listener.server.server_close()
    thread.join(WITHIN)
