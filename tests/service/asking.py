"""How tests ask a replica for a list."""

from fairhorizon.service.replica.list_builder import BuiltList, ListRequest
from fairhorizon.service.replica.replica import Engine


def ask(engine: Engine, user: str, n: int = 10, **more: object) -> BuiltList:
    """A list, as a request gets it."""
    return engine.submit(ListRequest(user, n, **more)).result(timeout=60)  # type: ignore[arg-type]
