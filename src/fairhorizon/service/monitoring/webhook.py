"""Sends alerts as JSON by POST, in a thread of its own: nothing waits for it."""

import json
import logging
import queue
import threading
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from fairhorizon.errors import ConfigError

TIMEOUT = 5.0  # seconds of one try
PAUSES = (1.0, 3.0)  # seconds between the tries
MOST_WAITING = 1000
LOG = logging.getLogger("fairhorizon.service")


def check_address(address: str) -> str:
    """The host of an address that can be sent to; the rest of it may be a secret."""
    try:
        parts = urlsplit(address)
        host = parts.hostname
    except ValueError:
        parts, host = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not host:
        raise ConfigError(
            "webhook: alerts cannot be sent to this address (give one that begins with http:// or "
            "https:// and has a host)"
        )
    return host


class Webhook:
    """The address that alerts are sent to, if there is one.

    pauses: seconds between tries; there is one try more than pauses.
    """

    def __init__(self, address: str | None, pauses: tuple[float, ...] = PAUSES) -> None:
        self.address, self.pauses = address, pauses
        self._waiting: queue.Queue[dict[str, str] | None] = queue.Queue(MOST_WAITING)
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._opener = build_opener(_NoRedirects)
        if address is not None:
            try:
                self.host = check_address(address)
            except ConfigError as error:  # a worker that does not start would serve no lists
                LOG.error("%s", error)
                self.address = None

    def send(self, body: dict[str, str]) -> None:
        """Send it as soon as possible; returns at once."""
        if self.address is None:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="webhook", daemon=True)
            self._thread.start()
        try:
            self._waiting.put_nowait(body)
        except queue.Full:
            LOG.error("webhook: %s does not answer, an alert is not sent", self.host)

    def stop(self) -> None:
        """Send what waits, each once at most, and end."""
        self._ended.set()
        if self._thread is not None:
            try:
                self._waiting.put_nowait(None)
            except queue.Full:
                return
            self._thread.join(timeout=TIMEOUT)

    def _run(self) -> None:
        while (body := self._waiting.get()) is not None:
            self._deliver(body)

    def _deliver(self, body: dict[str, str]) -> None:
        for pause in (*self.pauses, None):
            why = self._refused(body)
            if why is None:
                return
            if pause is None or self._ended.wait(pause):
                break
        LOG.error("webhook: an alert could not be sent to %s: %s", self.host, why)

    def _refused(self, body: dict[str, str]) -> Exception | None:
        """Why it could not be sent; None: it was."""
        request = Request(
            str(self.address),
            json.dumps(body).encode(),
            {"Content-Type": "application/json", "User-Agent": "fairhorizon"},
            method="POST",
        )
        try:
            self._opener.open(request, timeout=TIMEOUT).close()
        except HTTPError as error:
            error.close()
            return error
        except (OSError, HTTPException, ValueError) as error:
            return error
        return None


class _NoRedirects(HTTPRedirectHandler):
    """An alert goes to the address that was given, and nowhere else."""

    def redirect_request(self, *_: Any) -> None:
        return None
