"""The way in and out, and what pages are drawn with."""

from importlib.resources import files

from fastapi import APIRouter, Request, Response

from fairhorizon.service.api.auth import Authenticator
from fairhorizon.service.dashboard.auth import (
    SESSION,
    FormOfStranger,
    FormOfVisitor,
    Strange,
    address,
    set_cookie,
)
from fairhorizon.service.dashboard.rendering import HOME, LOGIN, PageRoute, page, see_other

FILES = {
    "style.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}


def local(path: str) -> str:
    """A page of ours; anything that a browser could take for another site is the first page."""
    begins = path.startswith("/") and not path.startswith("//")
    return path if begins and path.isprintable() and "\\" not in path else HOME


router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get(LOGIN)
async def ask_for_key(request: Request, somebody: Strange, next: str = HOME) -> Response:  # noqa: A002
    authenticator: Authenticator = request.app.state.authenticator
    authenticator.count(address(request))
    if not await authenticator.needs_key():
        return see_other(HOME)
    return page(request, somebody, "login.html.j2", next=local(next), error="")


@router.post(LOGIN)
async def sign_in(request: Request, form: FormOfStranger) -> Response:
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
async def sign_out(form: FormOfVisitor) -> Response:  # noqa: ARG001  # whose token was checked
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
