"""Around every request: its size, its time, and headers that keep browsers careful."""

import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fairhorizon.service.api.problems import Problem, answer
from fairhorizon.service.metrics import Metrics
from fairhorizon.service.vocabulary import LARGEST_BODY

CAREFUL = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
]


class _TooLargeError(Exception):
    """The body exceeds what is read."""


class Around:
    """Refuses bodies that are too large, and measures requests by their route."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begun, status, size = time.perf_counter(), 500, 0

        async def counted() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > LARGEST_BODY:
                raise _TooLargeError
            return message

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", []), *CAREFUL]
            await send(message)

        too_large = Problem(
            413, f"the body has more than {LARGEST_BODY:,} bytes", "send it in several calls"
        )
        try:
            if _announced(scope) > LARGEST_BODY:
                await answer(too_large)(scope, receive, sent)
            else:
                await self.app(scope, counted, sent)
        except _TooLargeError:
            await answer(too_large)(scope, receive, sent)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self.metrics.observe(route, status, time.perf_counter() - begun)


def _announced(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return 0
