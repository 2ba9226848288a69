"""Who looks at the dashboard: by a session where keys are in use, else anybody on this machine."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends, Request
from starlette.concurrency import run_in_threadpool

from fairhorizon.service.api.access import Doorkeeper
from fairhorizon.service.api.problems import TOO_LARGE, ApiProblem
from fairhorizon.service.background import Service
from fairhorizon.service.dashboard.sessions import SESSION, VISIT, Signer, new_visit
from fairhorizon.service.dashboard.visitors import SignInNeededError, Visitor
from fairhorizon.service.store import state as service_state
from fairhorizon.service.vocabulary import Role

LARGEST_FORM = 100_000  # bytes
TOKEN = "token"


async def stranger(request: Request) -> Visitor:
    """Whoever asks, before it is known who: by a random cookie."""
    cookie = request.cookies.get(VISIT, "")
    signer = await _signer(request)
    return Visitor(None, signer, cookie or new_visit(), is_new=not cookie)


async def visitor(request: Request) -> Visitor:
    """Who looks; a key of role read is enough. Its calls are counted like all others."""
    doorkeeper: Doorkeeper = request.app.state.doorkeeper
    somebody = await stranger(request)
    if not await doorkeeper.needs_key():
        key, found = doorkeeper.without_key(request), somebody
    else:
        cookie = request.cookies.get(SESSION, "")
        number = somebody.signer.key_id(cookie)
        known = None if number is None else await doorkeeper.by_id(number)
        if known is None:
            doorkeeper.count(address(request))
            raise SignInNeededError
        key, found = known, Visitor(None, somebody.signer, cookie, can_leave=True)
    doorkeeper.count(key.id or address(request))
    if not key.role.allows(Role.READ):
        raise ApiProblem(403, f"a key of role {key.role} may not look", "sign in with another")
    return Visitor(key, found.signer, found.cookie, found.is_new, found.can_leave)


async def _signer(request: Request) -> Signer:
    service: Service = request.app.state.service

    def read() -> str:
        with service.database.reading() as connection:
            return service_state.read(service.database, connection).secret

    return Signer(await run_in_threadpool(read))


def address(request: Request) -> str:
    return request.client.host if request.client else ""


@dataclass(frozen=True)
class Submitted:
    """A form of ours that somebody has sent."""

    by: Visitor
    fields: Mapping[str, str]

    def field(self, name: str) -> str:
        return self.fields.get(name, "").strip()


async def submitted(request: Request, by: Visitor) -> Submitted:
    """What was typed; a form of another site, or without the token of the session, is refused."""
    check_origin(request)
    if int(request.headers.get("Content-Length") or 0) > LARGEST_FORM:
        raise TOO_LARGE
    async with request.form(max_files=0, max_fields=20) as form:
        fields = {name: value for name, value in form.items() if isinstance(value, str)}
    if not by.signer.is_token(by.cookie, fields.get(TOKEN, "")) or by.is_new:
        raise ApiProblem(
            403,
            "this form does not belong to your session, which may be over",
            "load the page again, and send the form from there",
        )
    return Submitted(by, fields)


def check_origin(request: Request) -> None:
    """Browsers say which site a form is of; it has to be this one."""
    site = request.headers.get("Sec-Fetch-Site")
    origin = request.headers.get("Origin")
    host = request.headers.get("Host", "")
    if (site is not None and site != "same-origin") or (
        origin is not None and urlsplit(origin).netloc != host
    ):
        raise ApiProblem(403, "this form is of another site", "use the form of this dashboard")


async def submitted_by_stranger(
    request: Request, somebody: Annotated[Visitor, Depends(stranger)]
) -> Submitted:
    """A form of somebody who has not signed in."""
    return await submitted(request, somebody)


async def submitted_by_visitor(
    request: Request, somebody: Annotated[Visitor, Depends(visitor)]
) -> Submitted:
    """A form of somebody who looks."""
    return await submitted(request, somebody)


async def change(form: Annotated[Submitted, Depends(submitted_by_visitor)]) -> Submitted:
    """A form that changes something: a key of role admin is needed."""
    if not form.by.may_change:
        raise ApiProblem(403, "this key may look, but not change anything", "use one of role admin")
    return form


Visiting = Annotated[Visitor, Depends(visitor)]
Strange = Annotated[Visitor, Depends(stranger)]
FormOfStranger = Annotated[Submitted, Depends(submitted_by_stranger)]
FormOfVisitor = Annotated[Submitted, Depends(submitted_by_visitor)]
Change = Annotated[Submitted, Depends(change)]
