"""Errors as answers: what is wrong and how to mend it, as JSON."""

import logging
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from fairhorizon.errors import FairHorizonError
from fairhorizon.service.replica.requests import NoModelError
from fairhorizon.service.store.database import DatabaseAwayError

LOG = logging.getLogger("fairhorizon.service")
AGAIN = {"Retry-After": "1"}


class ProblemBody(BaseModel):
    """What an error answers with."""

    error: str
    """What is wrong."""
    remedy: str
    """What to do about it."""


MEANINGS = {
    400: "The body is not JSON, or the request makes no sense.",
    401: "No key, or none that is known.",
    403: "The key may not do this.",
    404: "There is no such thing.",
    409: "It contradicts what is there.",
    413: "It is too large.",
    422: "A value is not allowed.",
    429: "Too many requests of this key.",
    503: "The database is away, or there is too much to do.",
}
RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"model": ProblemBody, "description": text} for status, text in MEANINGS.items()
}


class Problem(Exception):  # noqa: N818  # it is answered, not raised to anybody
    """An error with its status."""

    def __init__(
        self, status: int, error: str, remedy: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(error)
        self.status, self.error, self.remedy, self.headers = status, error, remedy, headers


def answer(problem: Problem) -> JSONResponse:
    body = {"error": problem.error, "remedy": problem.remedy}
    return JSONResponse(body, problem.status, headers=dict(problem.headers or {}))


def install(app: FastAPI) -> None:
    """Answer every error with a body of one form."""

    @app.exception_handler(Problem)
    async def _problem(_: Request, error: Problem) -> JSONResponse:
        return answer(error)

    @app.exception_handler(DatabaseAwayError)
    async def _away(_: Request, error: DatabaseAwayError) -> JSONResponse:
        return answer(away(error))

    @app.exception_handler(NoModelError)
    async def _no_model(_: Request, error: NoModelError) -> JSONResponse:
        return answer(_split(503, error))

    @app.exception_handler(FairHorizonError)
    async def _ours(_: Request, error: FairHorizonError) -> JSONResponse:
        return answer(_split(422, error))

    @app.exception_handler(RequestValidationError)
    async def _invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        return answer(_of_validation(error))

    @app.exception_handler(HTTPException)
    async def _http(_: Request, error: HTTPException) -> JSONResponse:
        remedy = "see /docs for what there is" if error.status_code in (404, 405) else "see /docs"
        return answer(Problem(error.status_code, str(error.detail), remedy, error.headers))

    @app.exception_handler(Exception)
    async def _bug(_: Request, error: Exception) -> JSONResponse:
        LOG.error("a request failed", exc_info=error)
        return answer(Problem(500, "something went wrong here", "see the log of the service"))


def away(error: Exception) -> Problem:
    return _split(503, error, AGAIN)


def _split(status: int, error: Exception, headers: Mapping[str, str] | None = None) -> Problem:
    """Our messages end in a remedy in brackets."""
    text = str(error)
    what, found, remedy = text.rpartition(" (")
    if not found or not text.endswith(")"):
        what, remedy = text, "see /docs)"
    return Problem(status, what, remedy[:-1], headers)


def _of_validation(error: RequestValidationError) -> Problem:
    """The first fault; a body that cannot be read at all is another status."""
    fault = error.errors()[0]
    if fault["type"] == "json_invalid":
        why = fault.get("ctx", {}).get("error", fault["msg"])
        return Problem(400, f"the body is not JSON: {why}", "send JSON in UTF-8")
    where = ".".join(str(part) for part in fault["loc"])
    given = repr(fault.get("input"))
    shown = given if len(given) <= 80 else given[:77] + "..."
    return Problem(422, f"{where} = {shown}", fault["msg"].removeprefix("Value error, "))
