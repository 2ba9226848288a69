"""Errors as answers: what is wrong and how to mend it, as JSON."""

import json
import logging
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from fairhorizon.errors import FairHorizonError
from fairhorizon.service.replica.list_builder import NoModelError
from fairhorizon.service.settings import LARGEST_BODY
from fairhorizon.service.store.database import DatabaseAwayError
from fairhorizon.settings import expected

LOG = logging.getLogger("fairhorizon.service")
AGAIN = {"Retry-After": "1"}
LONGEST_SHOWN = 80  # letters of a value in a message
BODY = "body"

# What to give instead, where the words of pydantic or of the settings do not fit a body.
REMEDIES = {
    "dict_type": "an object",
    "list_type": "a list",
    "model_attributes_type": "an object",
    "model_type": "an object",
    "string_unicode": "text in UTF-8",
}


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
    405: "Not with this method.",
    409: "It contradicts what is there.",
    413: "It is too large.",
    422: "A value is not allowed.",
    429: "Too many requests of this key.",
    503: "The database is away, or there is too much to do.",
}
RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"model": ProblemBody, "description": text} for status, text in MEANINGS.items()
}


class ApiProblem(Exception):  # noqa: N818  # it is answered, not raised to anybody
    """An error with its status."""

    def __init__(
        self, status: int, error: str, remedy: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(error)
        self.status, self.error, self.remedy, self.headers = status, error, remedy, headers


TOO_LARGE = ApiProblem(
    413, f"the body has more than {LARGEST_BODY:,} bytes", "send it in several calls"
)
# What the framework answers before any of our code runs, by its own words.
OF_FRAMEWORK = {
    "Not Found": ApiProblem(404, "nothing is at this address", "see /docs for what there is"),
    "Method Not Allowed": ApiProblem(
        405, "this address does not go with this method", "see /docs for what there is"
    ),
    "There was an error parsing the body": ApiProblem(
        400, "the body cannot be read", "send JSON in UTF-8, not nested deeply"
    ),
    TOO_LARGE.error: TOO_LARGE,
}


def answer(problem: ApiProblem) -> JSONResponse:
    body = {"error": _sendable(problem.error), "remedy": _sendable(problem.remedy)}
    return JSONResponse(body, problem.status, headers=dict(problem.headers or {}))


def _sendable(text: str) -> str:
    """What was sent is repeated, and may have lone surrogates, which no answer can have."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def install(app: FastAPI) -> None:
    """Answer every error with a body of one form."""

    @app.exception_handler(ApiProblem)
    async def _problem(_: Request, error: ApiProblem) -> JSONResponse:
        return answer(error)

    @app.exception_handler(DatabaseAwayError)
    async def _away(_: Request, error: DatabaseAwayError) -> JSONResponse:
        LOG.warning("%s", error)
        return answer(away(error))

    @app.exception_handler(NoModelError)
    async def _no_model(_: Request, error: NoModelError) -> JSONResponse:
        return answer(_split(503, error, AGAIN))

    @app.exception_handler(FairHorizonError)
    async def _ours(_: Request, error: FairHorizonError) -> JSONResponse:
        return answer(_split(422, error))

    @app.exception_handler(RequestValidationError)
    async def _invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        return answer(of_validation(error))

    @app.exception_handler(HTTPException)
    async def _http(_: Request, error: HTTPException) -> JSONResponse:
        text = str(error.detail)
        # Its headers are kept: of 405 they say which methods there are.
        known = OF_FRAMEWORK.get(text, ApiProblem(error.status_code, text, "see /docs"))
        return answer(ApiProblem(known.status, known.error, known.remedy, error.headers))

    @app.exception_handler(Exception)
    async def _bug(_: Request, error: Exception) -> JSONResponse:
        LOG.error("a request failed", exc_info=error)
        return answer(ApiProblem(500, "something went wrong here", "see the log of the service"))


def away(error: Exception) -> ApiProblem:
    """What is away, but not where: anybody may ask whether the service is ready."""
    whole = _split(503, error, AGAIN)
    return ApiProblem(503, whole.error.partition(":")[0], whole.remedy, AGAIN)


def _split(status: int, error: Exception, headers: Mapping[str, str] | None = None) -> ApiProblem:
    """Our messages end in a remedy in brackets."""
    text = str(error)
    what, found, remedy = text.rpartition(" (")
    if not found or not text.endswith(")"):
        what, remedy = text, "see /docs)"
    return ApiProblem(status, what, remedy[:-1], headers)


def of_validation(error: RequestValidationError) -> ApiProblem:
    """The first fault; a body that cannot be read at all is another status."""
    fault = error.errors()[0]
    kind, given = fault["type"], fault.get("input")
    if kind == "json_invalid":
        why = fault.get("ctx", {}).get("error", fault["msg"])
        return ApiProblem(400, f"the body is not JSON: {why}", "send JSON in UTF-8")
    where, *path = fault["loc"]
    if where == BODY and not path:
        if kind == "missing":
            return ApiProblem(422, "the body is missing", "send JSON")
        # FastAPI passes a body of another content type on as bytes.
        if isinstance(given, bytes):
            remedy = "send the header Content-Type: application/json"
            return ApiProblem(400, "the body was not sent as JSON", remedy)
    name = _name(path) or "the body"
    if kind == "missing":
        return ApiProblem(422, f"{name} is missing", f"give {name}")
    if kind == "extra_forbidden":
        return ApiProblem(422, f"there is no field {name}", "leave it out (/docs has the fields)")
    shown = str(given) if where != BODY else json.dumps(given, ensure_ascii=False, default=str)
    if len(shown) > LONGEST_SHOWN:
        shown = shown[: LONGEST_SHOWN - 3] + "..."
    return ApiProblem(422, f"{name} {'=' if path else 'is'} {shown}", _remedy(fault))


def _name(path: list[str | int]) -> str:
    """As whoever sent it would write it: n, Candidates[0].Score."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return "".join(parts).removeprefix(".")


def _remedy(fault: Any) -> str:
    kind, context = fault["type"], fault.get("ctx", {})
    if kind in ("string_too_short", "string_too_long"):
        bound = (
            f"at least {context['min_length']}"
            if kind == "string_too_short"
            else f"at most {context['max_length']}"
        )
        return f"give {bound} character{'s' * (not bound.endswith(' 1'))}"
    if kind.startswith(("datetime_", "date_", "timezone_")):
        return "give a time as in 2026-11-17T12:00:00Z, or seconds since 1970"
    words = REMEDIES.get(kind) or expected(fault)
    return words if words.startswith("give ") else f"give {words}"
