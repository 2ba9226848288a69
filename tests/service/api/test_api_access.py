"""Keys and roles: who may call which route, and what becomes of keys that are none."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from api_client import Open, TestClient, get, wait_for

from fairhorizon.service.api import auth
from fairhorizon.service.settings import Role
from fairhorizon.service.store import keys
from fairhorizon.service.store.database import Database

pytestmark = pytest.mark.slow

MakeKey = Callable[[Role], str]

# The least role that each route needs. A new route has to be entered here.
API = {
    ("GET", "/api/recommend/{user}"): Role.READ,
    ("GET", "/api/recommend/{user}/"): Role.READ,
    ("GET", "/api/recommend/{user}/{within}"): Role.READ,
    ("POST", "/v1/rank"): Role.READ,
    ("POST", "/api/feedback"): Role.FEEDBACK,
    ("PUT", "/api/feedback"): Role.FEEDBACK,
    ("GET", "/api/feedback"): Role.READ,
    ("GET", "/api/feedback/{type}"): Role.READ,
    ("GET", "/api/user/{user}/feedback"): Role.READ,
    ("GET", "/api/user/{user}/feedback/{type}"): Role.READ,
    ("GET", "/api/item/{item}/feedback"): Role.READ,
    ("GET", "/api/item/{item}/feedback/{type}"): Role.READ,
    ("POST", "/api/item"): Role.ADMIN,
    ("POST", "/api/items"): Role.ADMIN,
    ("GET", "/api/items"): Role.READ,
    ("GET", "/api/item/{item}"): Role.READ,
    ("PATCH", "/api/item/{item}"): Role.ADMIN,
    ("DELETE", "/api/item/{item}"): Role.ADMIN,
    ("PUT", "/api/item/{item}/category/{category}"): Role.ADMIN,
    ("DELETE", "/api/item/{item}/category/{category}"): Role.ADMIN,
    ("POST", "/api/user"): Role.ADMIN,
    ("POST", "/api/users"): Role.ADMIN,
    ("GET", "/api/users"): Role.READ,
    ("GET", "/api/user/{user}"): Role.READ,
    ("PATCH", "/api/user/{user}"): Role.ADMIN,
    ("DELETE", "/api/user/{user}"): Role.ADMIN,
    ("GET", "/v1/limits"): Role.READ,
    ("POST", "/v1/limits"): Role.ADMIN,
    ("GET", "/v1/limits/{limit}"): Role.READ,
    ("PATCH", "/v1/limits/{limit}"): Role.ADMIN,
    ("DELETE", "/v1/limits/{limit}"): Role.ADMIN,
    ("GET", "/v1/exposure"): Role.READ,
    ("GET", "/v1/models"): Role.READ,
    ("POST", "/v1/models"): Role.ADMIN,
    ("POST", "/v1/models/rollback"): Role.ADMIN,
    ("POST", "/v1/models/{model}/promote"): Role.ADMIN,
    ("GET", "/v1/jobs"): Role.READ,
    ("POST", "/v1/jobs"): Role.ADMIN,
    ("GET", "/v1/jobs/{job}"): Role.READ,
    ("GET", "/metrics"): Role.READ,
}
# Without a key: they say nothing about what is served.
FREE = {
    ("GET", "/api/health/live"),
    ("GET", "/api/health/ready"),
    ("GET", "/openapi.json"),
    ("GET", "/docs"),
    ("GET", "/login"),
    ("POST", "/login"),
    ("GET", "/dashboard/style.css"),
    ("GET", "/dashboard/page.js"),
    ("GET", "/dashboard/icon.svg"),
}
# Pages of the dashboard, which have sessions: whoever has none is sent to /login.
PAGES = {
    ("GET", "/"),
    ("POST", "/logout"),
    ("GET", "/dashboard/limits"),
    ("GET", "/dashboard/models"),
    ("POST", "/dashboard/models"),
    ("POST", "/dashboard/models/rollback"),
    ("POST", "/dashboard/models/{model}/promote"),
    ("POST", "/dashboard/limits"),
    ("POST", "/dashboard/limits/{number}/change"),
    ("POST", "/dashboard/limits/{number}/end"),
    ("GET", "/dashboard/item/{item}"),
    ("GET", "/dashboard/user/{user}"),
    ("GET", "/dashboard/find"),
}


def all_routes(routes: list[Any]) -> Iterator[tuple[str, str]]:
    """Method and path of everything that an application answers."""
    for route in routes:
        router = getattr(route, "original_router", route)
        if hasattr(router, "routes"):
            yield from all_routes(router.routes)
        else:
            for method in route.methods - {"HEAD"}:
                yield method, route.path_format


def called(client: TestClient, route: tuple[str, str], key: str | None) -> int:
    """The status of a call that says nothing more than its path."""
    method, path = route
    for name in ("user", "item", "type", "within", "category"):
        path = path.replace(f"{{{name}}}", "a1")
    for name in ("limit", "model", "job", "number"):
        path = path.replace(f"{{{name}}}", "99")
    headers = {} if key is None else {"X-API-Key": key}
    return int(client.request(method, path, headers=headers, follow_redirects=False).status_code)


def test_every_route_is_in_the_table(shop: TestClient) -> None:
    assert set(all_routes(shop.app.routes)) == set(API) | FREE | PAGES  # type: ignore[attr-defined]


def test_every_route_needs_the_role_of_the_table(open_shop: Open, make_key: MakeKey) -> None:
    client = open_shop()
    found = {role: make_key(role) for role in Role}
    wait_for(lambda: called(client, ("GET", "/v1/jobs"), None) == 401, "keys to be in use")
    for route, least in API.items():
        assert called(client, route, None) == 401, route
        assert called(client, route, "fh_wrong_key") == 401, route
        for role, key in found.items():
            status = called(client, route, key)
            if role.allows(least):
                assert status not in (401, 403), (route, role)
            else:
                assert status == 403, (route, role)
    for route in FREE:
        assert called(client, route, None) in (200, 403, 422), route
    for route in PAGES:
        assert called(client, route, None) in (303, 403, 422), route


def test_a_key_is_asked_for_before_the_body_is_read(open_shop: Open, make_key: MakeKey) -> None:
    key = make_key(Role.ADMIN)
    client = open_shop()
    for path in ("/api/feedback", "/api/items", "/v1/limits", "/v1/rank"):
        headers = {"content-type": "application/json"}
        assert client.post(path, content=b"{", headers=headers).status_code == 401
        headers["X-API-Key"] = key
        assert client.post(path, content=b"{", headers=headers).status_code == 400


def test_a_role_does_what_those_below_it_do() -> None:
    order = [Role.READ, Role.FEEDBACK, Role.ADMIN]
    for place, role in enumerate(order):
        assert [role.allows(other) for other in order] == [n <= place for n in range(3)]


def test_keys_come_in_two_headers(open_shop: Open, make_key: MakeKey) -> None:
    key = make_key(Role.READ)
    client = open_shop()
    for headers in (
        {"X-API-Key": key},
        {"Authorization": f"Bearer {key}"},
        {"authorization": f"bearer  {key}"},
        {"X-API-Key": "", "Authorization": f"Bearer {key}"},
    ):
        assert client.get("/v1/limits", headers=headers).status_code == 200
    for headers in ({"Authorization": key}, {"Authorization": f"Basic {key}"}, {"Cookie": key}):
        refused = client.get("/v1/limits", headers=headers)
        assert refused.status_code == 401
        assert refused.json() == {
            "error": "a key is needed",
            "remedy": "send it as X-API-Key (make one: fairhorizon keys make)",
        }
        assert refused.headers["WWW-Authenticate"] == "Bearer"


def test_what_is_not_quite_the_key_is_refused_and_not_repeated(
    open_shop: Open, make_key: MakeKey
) -> None:
    key, other = make_key(Role.ADMIN), make_key(Role.READ)
    client = open_shop()
    _, number, secret = key.split("_", 2)
    wrong = [
        *(key[:length] for length in range(1, len(key))),
        f"{key}x",
        f"{key} x",
        key.upper(),
        f"xx_{number}_{secret}",
        f"fh_{number}_{other.split('_', 2)[2]}",
        f"fh_{other.split('_')[1]}_{secret}",
        f"fh_{number}_",
        "fh__",
        "' OR 1=1 --",
        "x" * 5000,
    ]
    for text in wrong:
        refused = client.get("/v1/limits", headers={"X-API-Key": text})
        assert refused.status_code == 401, text
        assert refused.json()["error"] == "this key is not known, or has ended"
        assert secret not in refused.text
        assert len(text) < 8 or text not in refused.text
    odd = client.get("/v1/limits", headers={b"X-API-Key": b"fh_\xff_\xfe"})
    assert odd.status_code == 401
    assert client.get("/v1/limits", headers={"X-API-Key": key}).status_code == 200


def test_a_key_that_was_ended_is_refused_some_seconds_later(
    open_shop: Open, make_key: MakeKey, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auth, "REMEMBERED", 0.2)
    ended, other = make_key(Role.READ), make_key(Role.READ)
    client = open_shop()
    assert client.get("/v1/jobs", headers={"X-API-Key": ended}).status_code == 200
    with database.writing() as connection:
        assert keys.end(database, connection, ended.split("_")[1])
    wait_for(
        lambda: client.get("/v1/jobs", headers={"X-API-Key": ended}).status_code == 401, "its end"
    )
    assert client.get("/v1/jobs", headers={"X-API-Key": other}).status_code == 200


def test_the_first_key_closes_the_service_for_calls_without_one(
    open_shop: Open, make_key: MakeKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auth, "REMEMBERED", 0.2)
    client = open_shop()
    assert client.get("/v1/jobs").status_code == 200
    make_key(Role.READ)
    wait_for(lambda: client.get("/v1/jobs").status_code == 401, "the key to be in use")


def test_without_keys_it_is_called_by_a_name_of_this_machine(shop: TestClient) -> None:
    for host in (
        "evil.example",
        "evil.example:8088",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "localhost@evil.example",
        "localhost:port",
        "local host",
        "10.0.0.1",
        "[::1",
        "[::1]x",
        "",
    ):
        refused = shop.get("/api/recommend/c1", headers={"Host": host})
        assert refused.status_code == 401, host
        assert refused.json() == {
            "error": "without keys this service answers to 127.0.0.1, localhost, ::1 only",
            "remedy": "call it by such a name, or make keys: fairhorizon keys make",
        }
    for host in ("localhost", "LocalHost:8088", "127.0.0.1", "127.0.0.1:1", "[::1]", "[::1]:8088"):
        assert shop.get("/api/recommend/c1", headers={"Host": host}).status_code == 200, host


def test_with_a_key_any_name_will_do(open_shop: Open, make_key: MakeKey) -> None:
    headers = {"X-API-Key": make_key(Role.READ), "Host": "shop.example"}
    assert open_shop().get("/api/recommend/c1", headers=headers).status_code == 200


def test_pages_of_others_cannot_ask_without_a_key(shop: TestClient) -> None:
    from_elsewhere = {"Sec-Fetch-Site": "cross-site"}
    assert shop.get("/api/recommend/c1", headers=from_elsewhere).status_code == 401
    for here in ("same-origin", "same-site", "none"):
        assert shop.get("/api/recommend/c1", headers={"Sec-Fetch-Site": here}).status_code == 200


def test_a_form_of_another_page_is_not_read(shop: TestClient) -> None:
    event = '[{"FeedbackType":"like","UserId":"c1","ItemId":"a1"}]'
    for kind in ("text/plain", "application/x-www-form-urlencoded", None):
        headers = {} if kind is None else {"content-type": kind}
        refused = shop.post("/api/feedback", content=event.encode(), headers=headers)
        assert refused.status_code == 400
        assert refused.json() == {
            "error": "the body was not sent as JSON",
            "remedy": "send the header Content-Type: application/json",
        }
    assert get(shop, "/api/feedback")["Feedback"] == []


def test_answers_keep_browsers_careful(shop: TestClient) -> None:
    for path in ("/api/recommend/c1", "/api/item/none", "/nowhere"):
        headers = shop.get(path).headers
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["X-Frame-Options"] == "DENY"
        assert headers["Referrer-Policy"] == "same-origin"
        assert "Access-Control-Allow-Origin" not in headers


def test_too_many_calls_have_to_wait(open_shop: Open) -> None:
    client = open_shop(requests_per_second=5)
    answers = [client.get("/v1/jobs") for _ in range(30)]
    good = [answer for answer in answers if answer.status_code == 200]
    refused = [answer for answer in answers if answer.status_code == 429]
    assert len(good) + len(refused) == 30
    assert len(good) >= 5
    assert refused[0].json() == {
        "error": "more than 5 requests a second",
        "remedy": "wait a little, or raise requests_per_second",
    }
    assert refused[0].headers["Retry-After"] == "1"
    wait_for(lambda: client.get("/v1/jobs").status_code == 200, "calls to come back")
    assert client.get("/api/health/live").status_code == 200  # never refused


def test_every_key_has_calls_of_its_own(open_shop: Open, make_key: MakeKey) -> None:
    first, second = make_key(Role.READ), make_key(Role.READ)
    client = open_shop(requests_per_second=0.01)
    seen = [
        client.get("/v1/jobs", headers={"X-API-Key": key}).status_code
        for key in (first, first, second, second, first)
    ]
    assert seen == [200, 429, 200, 429, 429]
    again = client.get("/v1/jobs", headers={"X-API-Key": first})
    assert 90 <= int(again.headers["Retry-After"]) <= 100
    # whoever guesses has calls by address
    guesses = [client.get("/v1/jobs", headers={"X-API-Key": f"fh_{n}_x"}) for n in range(3)]
    assert [answer.status_code for answer in guesses] == [401, 429, 429]
