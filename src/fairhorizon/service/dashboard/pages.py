"""Pages as HTML: everything in them is escaped, and browsers load nothing from elsewhere.

Errors are pages too, and whoever has not signed in is shown the way in.
"""

from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse
from fastapi.routing import APIRoute
from jinja2 import Environment, PackageLoader, StrictUndefined

from fairhorizon import __version__
from fairhorizon.errors import FairHorizonError
from fairhorizon.service.api.auth import Authenticator
from fairhorizon.service.api.problems import ApiProblem, away, of_validation
from fairhorizon.service.dashboard import charts
from fairhorizon.service.dashboard.sessions import (
    SESSION,
    AnonymousForm,
    AnonymousVisitor,
    SignInNeededError,
    Visitor,
    VisitorForm,
    address,
    keep_cookie,
    set_cookie,
)
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
        # Names of items and users are whatever somebody has sent.
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
    """A page drawn from a template.

    visitor: who sees it; None: nothing is known of them, as when something went wrong.
    content: the variables of the template.
    """
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


FILES = {
    "style.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}


def local(path: str) -> str:
    """A page of ours; anything that a browser could take for another site is the first page."""
    # "//host" and "/\host" lead to another host.
    begins = path.startswith("/") and not path.startswith("//")
    return path if begins and path.isprintable() and "\\" not in path else HOME


router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get(LOGIN)
async def ask_for_key(request: Request, somebody: AnonymousVisitor, next: str = HOME) -> Response:  # noqa: A002
    authenticator: Authenticator = request.app.state.authenticator
    authenticator.count(address(request))
    if not await authenticator.needs_key():
        return see_other(HOME)
    return page(request, somebody, "login.html.j2", next=local(next), error="")


@router.post(LOGIN)
async def sign_in(request: Request, form: AnonymousForm) -> Response:
    """Begin a session for whoever shows a key; every attempt is counted."""
    authenticator: Authenticator = request.app.state.authenticator
    authenticator.count(address(request))
    key = await authenticator.find(form.field("key"))
    following = local(form.field("next"))
    if key is None:
        error = "This key is not known, or has ended."
        return page(request, form.by, "login.html.j2", 401, next=following, error=error)
    answer = see_other(following)
    set_cookie(request, answer, SESSION, form.by.signer.session(key.id))
    return answer


@router.post("/logout")
async def sign_out(form: VisitorForm) -> Response:  # noqa: ARG001  # whose token was checked
    answer = see_other(HOME)
    answer.delete_cookie(SESSION, path="/", httponly=True, samesite="strict")
    return answer


@router.get("/dashboard/style.css")
@router.get("/dashboard/page.js")
@router.get("/dashboard/icon.svg")
def file(request: Request) -> Response:
    """What pages are drawn with; it says nothing about what is served."""
    name = request.url.path.rpartition("/")[2]
    content = (files("fairhorizon.service.dashboard") / "style" / name).read_bytes()
    headers = {"Cache-Control": "max-age=300"}
    return Response(content, media_type=FILES[name], headers=headers)
