"""Sessions of the dashboard: signed cookies, and tokens that only its own forms know."""

import hashlib
import hmac
import secrets
import time
from dataclasses import dataclass

SESSION = "fairhorizon_session"  # of somebody who has signed in
VISIT = "fairhorizon_visit"  # of everybody else: a random text
LASTS = 12 * 3600  # seconds


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
        if not hmac.compare_digest(
            self._signature("session", content).encode(), signature.encode("utf-8", "replace")
        ):
            return None
        number, _, end = content.split(".")  # as signed
        return number if (time.time() if now is None else now) < int(end) else None

    def token(self, cookie: str) -> str:
        """What the forms of a session have; nobody else can know it."""
        return self._signature("form", cookie)

    def is_token(self, cookie: str, given: str) -> bool:
        expected = self.token(cookie).encode()
        return bool(cookie) and hmac.compare_digest(expected, given.encode("utf-8", "replace"))

    def _signature(self, purpose: str, content: str) -> str:
        text = f"{purpose} {content}".encode("utf-8", "replace")
        return hmac.new(self.secret.encode(), text, hashlib.sha256).hexdigest()


def new_visit() -> str:
    return secrets.token_hex(16)
