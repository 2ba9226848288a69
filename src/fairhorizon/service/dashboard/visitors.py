"""Somebody who looks at the dashboard, and the cookies that they are known by."""

from dataclasses import dataclass

from fastapi import Request, Response

from fairhorizon.service.dashboard.sessions import LASTS, VISIT, Signer
from fairhorizon.service.store.keys import Key
from fairhorizon.service.vocabulary import Role


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
    # behind a proxy that ends TLS the scheme is http, and it says so
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
