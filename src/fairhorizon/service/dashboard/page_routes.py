"""Routes whose errors are pages, and that show strangers the way in."""

from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import quote

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse
from fastapi.routing import APIRoute

from fairhorizon.errors import FairHorizonError
from fairhorizon.service.api.problems import ApiProblem, away, of_validation
from fairhorizon.service.dashboard.rendering import problem_page
from fairhorizon.service.dashboard.visitors import SignInNeededError
from fairhorizon.service.store.database import DatabaseAwayError

HOME, LOGIN = "/", "/login"
SEE_OTHER = 303


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
