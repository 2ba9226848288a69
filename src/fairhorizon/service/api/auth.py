"""Who may do what: keys, their roles, and how often they may call."""

import hashlib
import math
import re
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Request, Response
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool

from fairhorizon.service.api.problems import ApiProblem
from fairhorizon.service.background import Service
from fairhorizon.service.settings import Role
from fairhorizon.service.store import keys
from fairhorizon.service.store.keys import Key

REMEMBERED = 5.0  # seconds, after which a key that was ended is refused everywhere
MOST_REMEMBERED = 10_000
EVERYBODY = Key("", "everybody", Role.ADMIN)
HEADER = "X-API-Key"
HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:]+))(?::\d{1,5})?")  # [::1]:8088, localhost
UNKNOWN = {"WWW-Authenticate": "Bearer"}


class Authenticator:
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
                raise ApiProblem(
                    401,
                    "a key is needed",
                    f"send it as {HEADER} (make one: fairhorizon keys make)",
                    UNKNOWN,
                )
            # Without keys the browser of somebody on this machine could be used by any page that it
            # shows.
            if request.headers.get("Sec-Fetch-Site") == "cross-site":
                raise ApiProblem(
                    401, "a page elsewhere asks without a key", "ask with one", UNKNOWN
                )
            return self.without_key(request)
        key = await self.find(text)
        if key is None:
            raise ApiProblem(
                401,
                "this key is not known, or has ended",
                "make one: fairhorizon keys make",
                UNKNOWN,
            )
        return key

    def without_key(self, request: Request) -> Key:
        """Everybody, who has to call the service by a name of this machine."""
        # A page elsewhere can let its own name lead to this machine (DNS rebinding), but the
        # browser then sends that name as the host.
        if _host(request) not in self.service.open_to:
            raise ApiProblem(
                401,
                f"without keys this service answers to {', '.join(self.service.open_to)} only",
                "call it by such a name, or make keys: fairhorizon keys make",
                UNKNOWN,
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

    async def find(self, text: str) -> Key | None:
        """The key that a text is; None: it is none, or has ended."""
        # Hashed, so that keys are not kept in memory. The text may be anything, also no UTF-8.
        name = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        return await self._remembered(name, self._look_up, text)

    async def by_id(self, number: str) -> Key | None:
        """The key with this public part, as a session has it; None: it has ended."""
        return await self._remembered(f"id {number}", self._look_up_id, number)

    async def _remembered(
        self, name: str, look_up: Callable[[str], Key | None], text: str
    ) -> Key | None:
        # Texts that are no key are remembered too: a client with a wrong key costs few queries.
        found, until = self._known.get(name, (None, 0.0))
        if time.monotonic() < until:
            return found
        found = await run_in_threadpool(look_up, text)
        # All at once: it is a cache of seconds, and guesses must not fill the memory.
        if len(self._known) >= MOST_REMEMBERED:
            self._known.clear()
        self._known[name] = found, time.monotonic() + REMEMBERED
        return found

    def _look_up(self, text: str) -> Key | None:
        if not text.isascii() or "\x00" in text:
            return None
        with self.service.database.reading() as connection:
            return keys.find(connection, text)

    def _look_up_id(self, number: str) -> Key | None:
        with self.service.database.reading() as connection:
            return keys.by_id(connection, number)

    def count(self, caller: str) -> None:
        """Refuse a caller who has no calls left; they come back with time."""
        rate, now = self.service.settings.requests_per_second, time.monotonic()
        # A token bucket that holds the calls of one second; of a rate below 1, one call.
        most = max(1.0, rate)
        left, then = self._calls.get(caller, (most, now))
        left = min(most, left + rate * (now - then))
        if len(self._calls) >= MOST_REMEMBERED:
            self._calls.clear()
        if left < 1:
            self._calls[caller] = left, now
            raise ApiProblem(
                429,
                f"more than {rate:g} requests a second",
                "wait a little, or raise requests_per_second",
                {"Retry-After": str(math.ceil((1 - left) / rate))},
            )
        self._calls[caller] = left - 1, now


def given_key(request: Request) -> str | None:
    """As Gorse has it, or as a bearer; clients without a key send an empty one."""
    text = request.headers.get(HEADER)
    if not text:
        scheme, _, rest = request.headers.get("Authorization", "").partition(" ")
        text = rest.strip() if scheme.lower() == "bearer" else None
    return text or None


def _host(request: Request) -> str:
    """The name that the service was called by."""
    found = HOST.fullmatch(request.headers.get("Host", ""))
    return "" if found is None else (found[1] or found[2]).lower()


@dataclass(frozen=True)
class RoleCheck:
    """Whether the caller may do what the role may; a request is counted once."""

    role: Role

    async def __call__(self, request: Request) -> Key:
        # `GuardedRoute` has asked already when FastAPI asks again as it solves the dependencies.
        key: Key | None = getattr(request.state, "key", None)
        if key is None:
            authenticator: Authenticator = request.app.state.authenticator
            client = request.client.host if request.client else ""
            try:
                key = await authenticator.who(request)
            except ApiProblem:
                # Whoever guesses keys is slowed down too.
                authenticator.count(client)
                raise
            authenticator.count(key.id or client)
            request.state.key = key
        if not key.role.allows(self.role):
            raise ApiProblem(
                403, f"a key of role {key.role} may not do this", f"use one of role {self.role}"
            )
        return key


def needs(role: Role) -> RoleCheck:
    """A dependency: the caller may do what the role may."""
    return RoleCheck(role)


class GuardedRoute(APIRoute):
    """Asks for the key before it reads the body, so that nobody without a key causes work."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        asked = [one.dependency for one in self.dependencies]
        checks = [one for one in asked if isinstance(one, RoleCheck)]

        async def guarded(request: Request) -> Response:
            for check in checks:
                await check(request)
            return await handle(request)

        return guarded


async def service_of(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


Serving = Annotated[Service, Depends(service_of)]
Reading = Depends(needs(Role.READ))
Feeding = Depends(needs(Role.FEEDBACK))
Administering = Depends(needs(Role.ADMIN))
