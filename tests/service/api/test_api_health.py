"""Whether the service runs and is ready, and what it tells Prometheus."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from api_client import Open, TestClient, get, recorded, send, wait_for
from prometheus_client.parser import text_string_to_metric_families

from fairhorizon.service.admin.set_up import set_up
from fairhorizon.service.app import build_app
from fairhorizon.service.background import Service
from fairhorizon.service.settings import ServiceSettings
from fairhorizon.service.store.database import Database
from local_postgres import Postgres


def test_it_lives_and_is_ready(shop: TestClient) -> None:
    assert get(shop, "/api/health/live") == {"Live": True}
    wait_for(lambda: shop.get("/api/health/ready").status_code == 200, "the model")
    assert get(shop, "/api/health/ready") == {"Ready": True}


def test_it_is_not_ready_before_the_model_is_loaded(database: Database, shop_run: Path) -> None:
    settings = ServiceSettings()
    set_up(database, settings, run=shop_run)
    client = TestClient(build_app(Service(database, settings)), base_url="http://localhost")
    assert get(client, "/api/health/live") == {"Live": True}  # nothing was started yet
    early = client.get("/api/health/ready")
    assert early.status_code == 503
    assert early.json() == {"error": "the model is being loaded", "remedy": "ask again"}
    assert early.headers["Retry-After"] == "1"


@pytest.fixture
def own_postgres(postgres: Postgres) -> Iterator[Postgres]:  # noqa: ARG001  # skips without one
    """A server that a test may stop."""
    server = Postgres.make()
    server.start()
    yield server
    server.remove()


@pytest.mark.slow
def test_it_is_ready_again_by_itself_when_the_database_is_back(
    own_postgres: Postgres, shop_run: Path
) -> None:
    url, settings = own_postgres.new_database("shop"), ServiceSettings()
    database = Database(url)
    set_up(database, settings, run=shop_run)
    app = build_app(Service(database, settings))
    event = {"FeedbackType": "like", "UserId": "c1", "ItemId": "a1"}
    with TestClient(app, base_url="http://localhost", raise_server_exceptions=False) as client:
        assert len(get(client, "/api/recommend/c1")) == 10
        own_postgres.stop()
        for method, path, content in (
            ("GET", "/api/health/ready", None),
            ("GET", "/api/recommend/c1", None),
            ("GET", "/api/items", None),
            ("GET", "/v1/limits", None),
            ("POST", "/api/feedback", [event]),
            ("POST", "/v1/rank", {"UserId": "c1", "Candidates": [{"Id": "a1", "Score": 1}]}),
        ):
            answer = client.request(method, path, json=content)
            assert answer.status_code == 503, (path, answer.text)
            assert answer.json() == {  # not where it is: anybody may ask for this
                "error": "the database does not answer",
                "remedy": "it is asked again at the next call",
            }
            assert answer.headers["Retry-After"] == "1"
        assert get(client, "/api/health/live") == {"Live": True}
        own_postgres.start()
        wait_for(lambda: client.get("/api/health/ready").status_code == 200, "the database")
        assert len(get(client, "/api/recommend/c2")) == 10
        assert [row.user_id for row in recorded(url)] == ["c1", "c2"]
        (limit,) = get(client, "/v1/limits")
        assert limit["Shown"] == 20


def measured(client: TestClient) -> dict[tuple[str, ...], float]:
    """Values by name and labels, as Prometheus would read them."""
    text = client.get("/metrics").text
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_metrics_are_what_was_done(open_shop: Open) -> None:
    client = open_shop(asked=("seller=small<=0.5",))
    for number in range(4):
        get(client, f"/api/recommend/c{number}?n=5")
    client.get("/api/recommend/c1?n=0")
    event = {"FeedbackType": "like", "UserId": "c1", "ItemId": "a1"}
    send(client, "POST", "/api/feedback", [event, {**event, "ItemId": "a2"}, event])
    send(client, "POST", "/api/feedback", [event])
    client.get("/nowhere")
    (limit,) = get(client, "/v1/limits")
    (group,) = limit["Groups"]
    now = measured(client)

    requests, route = "fairhorizon_requests_total", "/api/recommend/{user}"
    assert now[requests, route, "200"] == 4
    assert now[requests, route, "422"] == 1
    assert now[requests, "/api/feedback", "200"] == 2
    assert now[requests, "other", "404"] == 1
    assert now["fairhorizon_request_seconds_count", route] == 5
    assert 0 < now["fairhorizon_request_seconds_sum", route] < 60
    assert now["fairhorizon_feedback_events_total",] == 2
    assert now["fairhorizon_lists",] == 4
    assert now["fairhorizon_showings",] == 20
    assert now["fairhorizon_label_epoch",] == 1
    names = ("seller=small", "seller=small<=0.5", "always")  # group, limit, window
    assert now["fairhorizon_limit_asked_share", *names] == 0.5
    assert now["fairhorizon_limit_reached_share", *names] == group["Reached"]
    assert now["fairhorizon_limit_charged_showings", *names] == group["Charged"]
    assert now["fairhorizon_limit_price", *names] == group["Price"]


def test_every_request_is_measured_once_by_its_route(shop: TestClient) -> None:
    for item in ("a1", "a2", "missing", "slash%2Fed"):
        shop.get(f"/api/item/{item}")
    now = measured(shop)
    assert now["fairhorizon_requests_total", "/api/item/{item}", "200"] == 2
    assert now["fairhorizon_requests_total", "/api/item/{item}", "404"] == 2
