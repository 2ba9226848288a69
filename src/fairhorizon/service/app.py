"""The application: all routes of one service, and what happens around every request.

A server decodes a path before it is routed. Then an id with a slash, sent as %2F, looks like two
parts of the path. So slashes and percent signs of ids stay encoded until a route was found: ids in
paths are exactly those that were sent.
"""

import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import unquote_to_bytes

from fastapi import FastAPI, HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fairhorizon import __version__
from fairhorizon.service.api import catalogue, feedback, limits, lists, operating, problems
from fairhorizon.service.api.auth import Authenticator
from fairhorizon.service.api.problems import TOO_LARGE, ApiProblem, answer
from fairhorizon.service.background import Service
from fairhorizon.service.dashboard import (
    api_page,
    details,
    limit_pages,
    model_pages,
    overview,
    pages,
)
from fairhorizon.service.monitoring.exposure import RememberedChanges
from fairhorizon.service.monitoring.metrics import Metrics
from fairhorizon.service.settings import LARGEST_BODY

DESCRIPTION = """Recommends within exposure limits. `/api` has the names of Gorse, `/v1` what Gorse
does not have: limits, exposure, models, jobs. Keys are sent as `X-API-Key`."""

PREFIX = b"/api/"  # where ids stand in paths
KEPT = re.compile(rb"(%2[Ff]|%25)")
CAREFUL = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
]
NOT_UTF8 = ApiProblem(
    400, "the path is not UTF-8", "write every other byte than ASCII as %XX of UTF-8"
)


def build_app(service: Service) -> FastAPI:
    """The application of a service, which starts and stops with it."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.start()
        yield
        service.stop()

    app = FastAPI(
        title="FairHorizon",
        version=__version__,
        description=DESCRIPTION,
        lifespan=lifespan,
        responses=problems.RESPONSES,
        # dashboard/api_page.py draws the API without scripts of another host.
        docs_url=None,
        redoc_url=None,
    )
    app.state.service, app.state.authenticator = service, Authenticator(service)
    problems.install(app)
    for part in (lists, feedback, catalogue, limits, operating):
        app.include_router(part.router)
    app.include_router(operating.health)
    for part in (overview, limit_pages, model_pages, details, api_page, pages):
        app.include_router(part.router)
    app.state.changes = RememberedChanges()
    app.add_middleware(RequestMiddleware, metrics=service.metrics)
    return app


def routed(scope: Scope) -> Scope:
    """The request with a path in which ids are whole; a UnicodeDecodeError: it is not UTF-8."""
    raw: bytes = scope.get("raw_path") or b""
    if not raw.startswith(PREFIX):
        return scope
    # Everything is decoded but %2F and %25, which the route's handler decodes after the path is
    # split.
    parts = [part if KEPT.fullmatch(part) else unquote_to_bytes(part) for part in KEPT.split(raw)]
    return {**scope, "path": b"".join(parts).decode("utf-8")}


class RequestMiddleware:
    """Refuses what cannot be read or is too large, and measures requests by their route."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status, size = time.perf_counter(), 500, 0

        async def counted() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > LARGEST_BODY:
                # An HTTPException, which FastAPI passes on while it reads a body; it wraps others.
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
            # Refused by its header where it has one; a body sent in chunks is counted as it comes.
            if _announced(scope) > LARGEST_BODY:
                await answer(TOO_LARGE)(scope, receive, sent)
            else:
                await self.app(scope, counted, sent)
        except UnicodeDecodeError:
            await answer(NOT_UTF8)(scope, receive, sent)
        finally:
            # By route and not by path: ids in paths would make a time series each.
            route = getattr(scope.get("route"), "path_format", "other")
            self.metrics.observe(route, status, time.perf_counter() - started)


def _announced(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return 0
