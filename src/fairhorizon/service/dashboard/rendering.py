"""Pages as HTML: everything in them is escaped, and browsers load nothing from elsewhere.

Errors are pages too, and whoever has not signed in is shown the way in.
"""

from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from functools import cache
from typing import Any
from urllib.parse import quote

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse
from fastapi.routing import APIRoute
from jinja2 import Environment, PackageLoader, StrictUndefined

from fairhorizon import __version__
from fairhorizon.errors import FairHorizonError
from fairhorizon.service.api.problems import ApiProblem, away, of_validation
from fairhorizon.service.dashboard import charts
from fairhorizon.service.dashboard.auth import SignInNeededError, Visitor, keep_cookie
from fairhorizon.service.store.database import DatabaseAwayError

POLICY = "; ".join(
    (
        "default-src 'none'",
        "style-src 'self'",
        "script-src 'self'",
        "connect-src 'self'",
        "img-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {"Content-Security-Policy": POLICY, "Cache-Control": "no-store"}
HOME, LOGIN = "/", "/login"
SEE_OTHER = 303


@cache
def environment() -> Environment:
    """The templates, and how they write numbers and times."""
    made = Environment(
        loader=PackageLoader("fairhorizon.service.dashboard"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "in_path": lambda text: quote(str(text), safe=""),
        "percent": charts.percent,
        "exact_percent": lambda share: f"{100 * share:.2f} %",
        "plain": charts.plain,
        "ms": charts.milliseconds,
        "time": moment,
        "hour": lambda hour: moment(3600 * hour),
        "label": label,
    }
    return made


def moment(time: float) -> str:
    """A time in UTC, as people read it."""
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M:%S")


def label(value: Any) -> str:
    """A value of an item's labels as text."""
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value)


def page(
    request: Request, visitor: Visitor | None, template: str, status: int = 200, **content: Any
) -> HTMLResponse:
    """A page for somebody; None: of whom nothing is known, as when something went wrong."""
    text = (
        environment()
        .get_template(template)
        .render(visitor=visitor, path=request.url.path, version=__version__, **content)
    )
    answer = HTMLResponse(text, status, HEADERS)
    if visitor is not None:
        keep_cookie(request, answer, visitor)
    return answer


def problem_page(request: Request, problem: ApiProblem) -> HTMLResponse:
    """What is wrong and what to do about it."""
    answer = page(
        request,
        None,
        "problem.html.j2",
        problem.status,
        error=problem.error,
        remedy=problem.remedy,
    )
    answer.headers.update(problem.headers or {})
    return answer


class PageRoute(APIRoute):
    """Answers errors with pages, and whoever has not signed in with the way in."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def shown(request: Request) -> Response:
            try:
                return await handle(request)
            except SignInNeededError:
                return see_other(f"{LOGIN}?next={quote(_here(request), safe='')}")
            except ApiProblem as problem:
                return problem_page(request, problem)
            except RequestValidationError as error:
                return problem_page(request, of_validation(error))
            except DatabaseAwayError as error:
                return problem_page(request, away(error))
            except FairHorizonError as error:
                return problem_page(request, ApiProblem(422, str(error), ""))

        return shown


def see_other(path: str) -> RedirectResponse:
    """To another page of ours, by GET."""
    return RedirectResponse(path, SEE_OTHER, {"Cache-Control": "no-store"})


def _here(request: Request) -> str:
    """The page to come back to; a form that was sent is not one."""
    if request.method != "GET":
        return HOME
    query = request.url.query
    return request.url.path + (f"?{query}" if query else "")
