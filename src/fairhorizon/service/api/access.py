"""Who may do what: keys, their roles, and how often they may call."""

import hashlib
import time
from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Depends, Request
from starlette.concurrency import run_in_threadpool

from fairhorizon.service.api.problems import Problem
from fairhorizon.service.service import Service
from fairhorizon.service.store import keys
from fairhorizon.service.store.keys import Key
from fairhorizon.service.vocabulary import Role

REMEMBERED = 5.0  # seconds, after which a key that was ended is refused everywhere
MOST_REMEMBERED = 10_000
EVERYBODY = Key("", "everybody", Role.ADMIN)
HEADER = "X-API-Key"


class Doorkeeper:
    """Finds keys, remembers them for some seconds, and counts the calls of each."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._known: dict[str, tuple[Key | None, float]] = {}
        self._keys_exist = (False, -REMEMBERED)
        self._calls: dict[str, tuple[float, float]] = {}  # tokens left, at which time

    async def who(self, request: Request) -> Key:
        """The caller's key; everybody may do everything where there are no keys."""
        text = given_key(request)
        if text is None:
            if await self.needs_key():
                raise Problem(
                    401, "a key is needed", f"send it as {HEADER} (make one: fairhorizon keys make)"
                )
            return self.without_key(request)
        key = await self._find(text)
        if key is None:
            raise Problem(401, "this key is not known, or has ended", "make one: fairhorizon keys")
        return key

    def without_key(self, request: Request) -> Key:
        """Everybody, but only by a name of this machine: a page elsewhere cannot pretend to be."""
        host = request.url.hostname or ""
        if host not in self.service.open_to:
            raise Problem(
                401,
                f"without keys this service answers to {', '.join(self.service.open_to)} only",
                "call it by such a name, or make keys: fairhorizon keys make",
            )
        return EVERYBODY

    async def needs_key(self) -> bool:
        """Whether calls without a key are refused."""
        if not self.service.open_to:
            return True
        known, until = self._keys_exist
        if time.monotonic() >= until:
            known = await run_in_threadpool(self._any_keys)
            self._keys_exist = known, time.monotonic() + REMEMBERED
        return known

    def _any_keys(self) -> bool:
        with self.service.database.reading() as connection:
            return keys.any_in_use(connection)

    async def _find(self, text: str) -> Key | None:
        name = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        found, until = self._known.get(name, (None, 0.0))
        if time.monotonic() < until:
            return found
        found = await run_in_threadpool(self._look_up, text)
        if len(self._known) >= MOST_REMEMBERED:
            self._known.clear()
        self._known[name] = found, time.monotonic() + REMEMBERED
        return found

    def _look_up(self, text: str) -> Key | None:
        if not text.isascii() or "\x00" in text:
            return None
        with self.service.database.reading() as connection:
            return keys.find(connection, text)

    def count(self, caller: str) -> None:
        """Refuse a caller who has no calls left; they come back with time."""
        rate, now = self.service.settings.requests_per_second, time.monotonic()
        left, then = self._calls.get(caller, (rate, now))
        left = min(rate, left + rate * (now - then))
        if len(self._calls) >= MOST_REMEMBERED:
            self._calls.clear()
        if left < 1:
            self._calls[caller] = left, now
            raise Problem(
                429,
                f"more than {rate:g} requests a second",
                "wait a little, or raise requests_per_second",
                {"Retry-After": "1"},
            )
        self._calls[caller] = left - 1, now


def given_key(request: Request) -> str | None:
    """As Gorse has it, or as a bearer."""
    text = request.headers.get(HEADER)
    if text is None:
        scheme, _, rest = request.headers.get("Authorization", "").partition(" ")
        text = rest.strip() if scheme.lower() == "bearer" else None
    return text


def needs(role: Role) -> Callable[[Request], Awaitable[Key]]:
    """A dependency: the caller may do what the role may."""

    async def check(request: Request) -> Key:
        doorkeeper: Doorkeeper = request.app.state.doorkeeper
        key = await doorkeeper.who(request)
        client = request.client.host if request.client else ""
        doorkeeper.count(key.id or client)
        if not key.role.allows(role):
            raise Problem(
                403, f"a key of role {key.role} may not do this", f"use one of role {role}"
            )
        return key

    return check


def service_of(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


Serving = Annotated[Service, Depends(service_of)]
Reading = Depends(needs(Role.READ))
Feeding = Depends(needs(Role.FEEDBACK))
Administering = Depends(needs(Role.ADMIN))
