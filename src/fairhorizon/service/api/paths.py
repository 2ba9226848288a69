"""Ids in paths: exactly those that were sent, whatever characters they have.

A server decodes a path before it is routed. Then an id with a slash, sent as %2F, looks like two
parts of the path. So slashes and percent signs of ids stay encoded until a route was found.
"""

import re
from urllib.parse import quote, unquote, unquote_to_bytes

from starlette.convertors import Convertor, register_url_convertor
from starlette.types import Scope

PREFIX = b"/api/"  # where ids stand in paths
KEPT = re.compile(rb"(%2[Ff]|%25)")


class IdConvertor(Convertor[str]):
    """One part of a path, as in /api/item/{item:id}."""

    regex = "[^/]+"

    def convert(self, value: str) -> str:
        return unquote(value)

    def to_string(self, value: str) -> str:
        return quote(value, safe="")


register_url_convertor("id", IdConvertor())


def routed(scope: Scope) -> Scope:
    """The request with a path in which ids are whole; a UnicodeDecodeError: it is not UTF-8."""
    raw: bytes = scope.get("raw_path") or b""
    if not raw.startswith(PREFIX):
        return scope
    parts = [part if KEPT.fullmatch(part) else unquote_to_bytes(part) for part in KEPT.split(raw)]
    return {**scope, "path": b"".join(parts).decode("utf-8")}
