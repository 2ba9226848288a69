"""Calls to a service at work: register a model that was just fitted, and promote it."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from fairhorizon.errors import ConfigError

KEY = "FAIRHORIZON_KEY"  # environment variable with a key of role admin
TIMEOUT = 60.0  # seconds of one call
PATIENCE = 900.0  # seconds, for all replicas to load the model
EVERY = 0.5  # seconds between two looks at a job


def promote(url: str, folder: Path, say: Callable[[str], None]) -> None:
    """Let a service load a run folder and serve it; returns when it is served.

    url: such as http://127.0.0.1:8088.  folder: as the machine of the service knows it.
    say: receives lines on what was done.
    """
    models = {one["Folder"]: one["Id"] for one in _call(url, "GET", "/v1/models")}
    # As the service names folders (`post_model`).
    name = os.path.realpath(folder)
    if name not in models:
        _finished(url, _call(url, "POST", "/v1/models", {"Folder": name})["Id"])
        models = {one["Folder"]: one["Id"] for one in _call(url, "GET", "/v1/models")}
    job = _call(url, "POST", f"/v1/models/{models[name]}/promote")["Id"]
    say(f"{url}: {_finished(url, job)}")


def _finished(url: str, job: int) -> str:
    """What a job says at its end."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        status = _call(url, "GET", f"/v1/jobs/{job}")
        if status["State"] == "failed":
            raise ConfigError(f"{url}: {status['Message']}")
        if status["State"] == "done":
            return str(status["Message"])
        time.sleep(EVERY)
    raise ConfigError(f"{url}: job {job} has not ended (see GET /v1/jobs/{job})")


def _call(url: str, method: str, path: str, content: Any = None) -> Any:
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    if os.environ.get(KEY):
        headers["X-API-Key"] = os.environ[KEY]
    body = None if content is None else json.dumps(content).encode()
    try:
        request = Request(url.rstrip("/") + path, body, headers, method=method)
        with urlopen(request, timeout=TIMEOUT) as answer:
            return json.load(answer)
    except HTTPError as error:
        # The service answers errors with {error, remedy}; other servers answer anything.
        with error:
            told = error.read().decode("utf-8", "replace")
        try:
            problem = json.loads(told)
            text = f"{problem['error']} ({problem['remedy']})"
        except (ValueError, KeyError, TypeError):
            text = f"status {error.code} (is this the address of the service?)"
        remedy = f"; {KEY} is the key of this command" if error.code in (401, 403) else ""
        raise ConfigError(f"{url}: {text}{remedy}") from None
    except (URLError, OSError, ValueError) as error:
        raise ConfigError(
            f"{url}: the service does not answer: {error} (give an address such as "
            "http://127.0.0.1:8088)"
        ) from None
