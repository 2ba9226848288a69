"""Commands of the service need packages that are installed only when asked for."""

from collections.abc import Iterator
from contextlib import contextmanager

from fairhorizon.errors import ConfigError

PACKAGES = ("alembic", "fastapi", "granian", "prometheus_client", "psycopg", "sqlalchemy")


@contextmanager
def needs_service(command: str) -> Iterator[None]:
    """Say what to install where a package of the service is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] not in PACKAGES:
            raise
        raise ConfigError(
            f"{command}: the service needs further packages, {error.name} is missing (pip install "
            "'fairhorizon[service]')"
        ) from None
