"""The application: all routes of one service."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from fairhorizon import __version__
from fairhorizon.service.api import (
    catalogue,
    exposure,
    feedback,
    limits,
    lists,
    operating,
    problems,
)
from fairhorizon.service.api.auth import Authenticator
from fairhorizon.service.api.middleware import Around
from fairhorizon.service.background import Service
from fairhorizon.service.dashboard import item_pages, limit_pages, overview, sign_in, user_pages
from fairhorizon.service.monitoring.exposure import RememberedChanges

DESCRIPTION = """Recommends within exposure limits. `/api` has the names of Gorse, `/v1` what Gorse
does not have: limits, exposure, models, jobs. Keys are sent as `X-API-Key`."""


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
    )
    app.state.service, app.state.authenticator = service, Authenticator(service)
    problems.install(app)
    for part in (lists, feedback, catalogue, limits, exposure, operating):
        app.include_router(part.router)
    app.include_router(operating.health)
    for pages in (overview, limit_pages, item_pages, user_pages, sign_in):
        app.include_router(pages.router)
    app.state.changes = RememberedChanges()
    app.add_middleware(Around, metrics=service.metrics)
    return app
