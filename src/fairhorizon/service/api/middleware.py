"""Around every request: its path, its size, its time, and headers that keep browsers careful."""

import time

from fastapi import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fairhorizon.service.api.paths import routed
from fairhorizon.service.api.problems import TOO_LARGE, ApiProblem, answer
from fairhorizon.service.monitoring.metrics import Metrics
from fairhorizon.service.vocabulary import LARGEST_BODY

CAREFUL = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
]
NOT_UTF8 = ApiProblem(
    400, "the path is not UTF-8", "write every other byte than ASCII as %XX of UTF-8"
)


class Around:
    """Refuses what cannot be read or is too large, and measures requests by their route."""

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
                # the one kind of error that whoever reads the body lets pass as it is
                raise HTTPException(TOO_LARGE.status, TOO_LARGE.error)
            return message

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", []), *CAREFUL]
            await send(message)

        try:
            scope = routed(scope)
            if _announced(scope) > LARGEST_BODY:
                await answer(TOO_LARGE)(scope, receive, sent)
            else:
                await self.app(scope, counted, sent)
        except UnicodeDecodeError:
            await answer(NOT_UTF8)(scope, receive, sent)
        finally:
            route = getattr(scope.get("route"), "path_format", "other")
            self.metrics.observe(route, status, time.perf_counter() - begun)


def _announced(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return 0
