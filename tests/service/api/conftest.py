"""The shop behind the real application, in this process."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from api_client import Open, TestClient, send

from fairhorizon.service.admin.set_up import set_up
from fairhorizon.service.app import build_app
from fairhorizon.service.background import Service
from fairhorizon.service.settings import Role, ServiceSettings
from fairhorizon.service.store import keys
from fairhorizon.service.store.database import Database
from fairhorizon.service.store.migrating import prepare


@pytest.fixture
def open_shop(url: str, shop_run: Path) -> Iterator[Open]:
    """Opens the shop with some settings; the service runs until the test ends."""
    with ExitStack() as stack:

        def begin(
            *, run: Path | None = shop_run, asked: tuple[str, ...] = (), **settings: object
        ) -> TestClient:
            chosen = ServiceSettings.model_validate(settings)
            database = Database(url)
            set_up(database, chosen, run=run, asked=asked)
            app = build_app(Service(database, chosen))
            client = TestClient(app, base_url="http://localhost", raise_server_exceptions=False)
            return stack.enter_context(client)

        yield begin


@pytest.fixture
def shop(open_shop: Open) -> TestClient:
    """The shop as it is by default, under popular<=0.3."""
    return open_shop()


@pytest.fixture
def free_shop(shop: TestClient) -> TestClient:
    """The shop without any limit: then lists are the model's own."""
    send(shop, "DELETE", "/v1/limits/1")
    return shop


@pytest.fixture
def make_key(database: Database) -> Callable[[Role], str]:
    """Makes keys of the shop."""
    prepare(database)

    def make(role: Role) -> str:
        with database.writing() as connection:
            return keys.make(database, connection, f"the {role} key", role)

    return make
