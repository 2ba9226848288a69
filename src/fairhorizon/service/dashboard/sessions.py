"""Who looks at the dashboard: by a session where keys are in use, else anybody on this machine.

Sessions are signed cookies, and every form has a token that only the pages of its session know.
"""

import hashlib
import hmac
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends, Request, Response
from starlette.concurrency import run_in_threadpool

from fairhorizon.service.api.auth import Authenticator
from fairhorizon.service.api.problems import TOO_LARGE, ApiProblem
from fairhorizon.service.background import Service
from fairhorizon.service.settings import Role
from fairhorizon.service.store.keys import Key
from fairhorizon.service.store.state import read_state

SESSION = "fairhorizon_session"  # of somebody who has signed in
VISIT = "fairhorizon_visit"  # of everybody else: a random text
LASTS = 12 * 3600  # seconds
LARGEST_FORM = 100_000  # bytes
TOKEN = "token"


@dataclass(frozen=True)
class Signer:
    """Signs with the secret of the database, so that all replicas know the same sessions."""

    secret: str

    def session(self, key_id: str, now: float | None = None) -> str:
        """A cookie for whoever has shown this key."""
        end = int((time.time() if now is None else now) + LASTS)
        content = f"{key_id}.{secrets.token_hex(16)}.{end}"
        return f"{content}.{self._signature('session', content)}"

    def key_id(self, cookie: str, now: float | None = None) -> str | None:
        """Whose session it is; None: it is not ours, was changed, or is over."""
        content, _, signature = cookie.rpartition(".")
        # Compared in constant time, so that answers do not tell how much of a signature is right.
        if not hmac.compare_digest(
            self._signature("session", content).encode(), signature.encode("utf-8", "replace")
        ):
            return None
        # It is signed, so it has the form that `session` gave it.
        number, _, end = content.split(".")
        return number if (time.time() if now is None else now) < int(end) else None

    def token(self, cookie: str) -> str:
        """What the forms of a session have; nobody else can know it."""
        return self._signature("form", cookie)

    def is_token(self, cookie: str, given: str) -> bool:
        expected = self.token(cookie).encode()
        # Without a cookie there is no session: the token of an empty one would be everybody's.
        return bool(cookie) and hmac.compare_digest(expected, given.encode("utf-8", "replace"))

    def _signature(self, purpose: str, content: str) -> str:
        text = f"{purpose} {content}".encode("utf-8", "replace")
        return hmac.new(self.secret.encode(), text, hashlib.sha256).hexdigest()


def new_visit() -> str:
    return secrets.token_hex(16)


class SignInNeededError(Exception):
    """Nobody has signed in, or the session is over."""


@dataclass(frozen=True)
class Visitor:
    """Somebody with a cookie that the tokens of their forms are bound to."""

    key: Key | None  # None: not signed in yet
    signer: Signer
    cookie: str
    is_new: bool = False  # the cookie has to be sent
    can_leave: bool = False  # there is a session to end

    @property
    def token(self) -> str:
        return self.signer.token(self.cookie)

    @property
    def may_change(self) -> bool:
        return self.key is not None and self.key.role.allows(Role.ADMIN)


def keep_cookie(request: Request, answer: Response, somebody: Visitor) -> None:
    """Send the random cookie to whoever has none."""
    if somebody.is_new:
        set_cookie(request, answer, VISIT, somebody.cookie)


def set_cookie(request: Request, answer: Response, name: str, value: str) -> None:
    """Neither scripts nor other sites see it, and it ends after some hours."""
    # Behind a proxy that ends TLS the scheme is http, and the proxy says what it was.
    schemes = (request.url.scheme, request.headers.get("X-Forwarded-Proto", ""))
    answer.set_cookie(
        name,
        value,
        max_age=LASTS,
        path="/",
        secure="https" in schemes,
        httponly=True,
        samesite="strict",
    )


async def anonymous_visitor(request: Request) -> Visitor:
    """Whoever asks, before it is known who: by a random cookie."""
    cookie = request.cookies.get(VISIT, "")
    signer = await _signer(request)
    return Visitor(None, signer, cookie or new_visit(), is_new=not cookie)


async def visitor(request: Request) -> Visitor:
    """Who looks; a key of role read is enough. Its calls are counted like all others."""
    authenticator: Authenticator = request.app.state.authenticator
    somebody = await anonymous_visitor(request)
    if not await authenticator.needs_key():
        key, found = authenticator.without_key(request), somebody
    else:
        cookie = request.cookies.get(SESSION, "")
        # The session names its key: when the key is ended, so are its sessions.
        number = somebody.signer.key_id(cookie)
        known = None if number is None else await authenticator.by_id(number)
        if known is None:
            authenticator.count(address(request))
            raise SignInNeededError
        key, found = known, Visitor(None, somebody.signer, cookie, can_leave=True)
    authenticator.count(key.id or address(request))
    if not key.role.allows(Role.READ):
        raise ApiProblem(403, f"a key of role {key.role} may not look", "sign in with another")
    return Visitor(key, found.signer, found.cookie, found.is_new, found.can_leave)


async def _signer(request: Request) -> Signer:
    service: Service = request.app.state.service

    def read() -> str:
        with service.database.reading() as connection:
            return read_state(service.database, connection).secret

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
    # Forms have few short fields; without bounds anybody could fill the memory.
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
    # Old browsers send neither header: there the token alone protects.
    site = request.headers.get("Sec-Fetch-Site")
    origin = request.headers.get("Origin")
    host = request.headers.get("Host", "")
    if (site is not None and site != "same-origin") or (
        origin is not None and urlsplit(origin).netloc != host
    ):
        raise ApiProblem(403, "this form is of another site", "use the form of this dashboard")


async def anonymous_form(
    request: Request, somebody: Annotated[Visitor, Depends(anonymous_visitor)]
) -> Submitted:
    """A form of somebody who has not signed in."""
    return await submitted(request, somebody)


async def visitor_form(
    request: Request, somebody: Annotated[Visitor, Depends(visitor)]
) -> Submitted:
    """A form of somebody who looks."""
    return await submitted(request, somebody)


async def admin_form(form: Annotated[Submitted, Depends(visitor_form)]) -> Submitted:
    """A form that changes something: a key of role admin is needed."""
    if not form.by.may_change:
        raise ApiProblem(403, "this key may look, but not change anything", "use one of role admin")
    return form


CurrentVisitor = Annotated[Visitor, Depends(visitor)]
AnonymousVisitor = Annotated[Visitor, Depends(anonymous_visitor)]
AnonymousForm = Annotated[Submitted, Depends(anonymous_form)]
VisitorForm = Annotated[Submitted, Depends(visitor_form)]
AdminForm = Annotated[Submitted, Depends(admin_form)]
