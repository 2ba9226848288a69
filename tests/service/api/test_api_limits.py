"""/v1/limits: create, change, end, and counts that are those of the recorded lists."""

from math import log2
from typing import Any

import pytest
from api_client import Open, TestClient, get, recorded, send

pytestmark = pytest.mark.slow

SMALL = {f"a{number}" for number in range(0, 63, 3)}  # items of small sellers


def serve(client: TestClient, lists: int, n: int = 10) -> None:
    for number in range(lists):
        assert len(get(client, f"/api/recommend/c{number % 40}?n={n}")) == n


def test_the_limits_of_the_run_are_kept_to_begin_with(shop: TestClient) -> None:
    (state,) = get(shop, "/v1/limits")
    assert state.pop("CreatedAt").startswith("20")
    # before the first list nothing was counted; the replica may have taken its lease
    groups = state.pop("Groups")
    assert state == {
        "Id": 1,
        "Limit": "popular<=0.3",
        "Promised": True,
        "Window": "always",
        "WindowName": state["WindowName"],
        "Counts": "served",
        "Slack": 200.0,
        "EndedAt": None,
        "Shown": 0.0,
        "Kept": state["Kept"],
    }
    assert all((one["Spent"], one["Pending"], one["Reached"]) == (0, 0, None) for one in groups)


def test_counts_are_those_of_the_recorded_lists(shop: TestClient, url: str) -> None:
    serve(shop, 30)
    rows = recorded(url)
    shown = sum(len(row.items) for row in rows)
    inside = sum(bool(place) for row in rows for place in row.labels)
    state = get(shop, "/v1/limits/1")
    (group,) = state["Groups"]
    assert (
        (state["Shown"], group["Spent"], group["Pending"]) == (shown, inside, 0) == (300, inside, 0)
    )
    assert group["Reached"] == inside / shown <= 0.3
    assert (group["Group"], group["Asked"], state["Kept"]) == ("popular", 0.3, True)
    assert 0 <= group["Charged"] - group["Spent"] <= 200  # a lease is at most the slack


def test_every_limit_counts_from_its_beginning(shop: TestClient) -> None:
    serve(shop, 3)
    made = send(shop, "POST", "/v1/limits", {"Limit": "seller=small<=0.5"})
    serve(shop, 2, n=5)
    first, second = get(shop, "/v1/limits")
    assert (first["Id"], first["Shown"]) == (1, 40)
    assert (second["Id"], second["Shown"]) == (made["Id"], 10) == (2, 10)


def test_limits_by_place_count_as_they_say(open_shop: Open, url: str) -> None:
    client = open_shop(asked=("seller=small<=0.9;weights=log", "seller=small<=0.9@2"))
    serve(client, 4, n=3)
    weights = [1 / log2(1 + place) for place in (1, 2, 3)]  # 1, 0.63, 0.5
    inside = [[item in SMALL for item in row.items] for row in recorded(url)]
    weighed, first = get(client, "/v1/limits")
    assert weighed["Shown"] == pytest.approx(4 * sum(weights), abs=1e-5)
    assert weighed["Groups"][0]["Spent"] == pytest.approx(
        sum(weight for row in inside for weight, one in zip(weights, row, strict=True) if one),
        abs=1e-5,
    )
    assert first["Shown"] == 8
    assert first["Groups"][0]["Spent"] == sum(sum(row[:2]) for row in inside)


def test_a_limit_for_each_value_has_a_group_for_each(open_shop: Open, url: str) -> None:
    client = open_shop(asked=("seller:each<=0.7",))
    serve(client, 6, n=5)
    small = sum(item in SMALL for row in recorded(url) for item in row.items)
    (state,) = get(client, "/v1/limits")
    spent = {group["Group"]: group["Spent"] for group in state["Groups"]}
    assert spent == {"seller=big": 30 - small, "seller=small": small}
    assert max(spent.values()) <= 0.7 * 30


def test_a_floor_is_steered_and_not_promised(open_shop: Open) -> None:
    client = open_shop(asked=("seller=small>=0.99",))
    serve(client, 2)
    (state,) = get(client, "/v1/limits")
    reached = state["Groups"][0]["Reached"]
    assert state["Promised"] is False
    assert state["Kept"] is (reached >= 0.99)
    assert reached < 0.99  # its price is not yet high enough


def test_a_window_of_showings_begins_anew(open_shop: Open) -> None:
    client = open_shop(window="20 showings")
    for lists, name, shown in ((1, "1", 10), (1, "1", 20), (1, "2", 10), (2, "3", 10)):
        serve(client, lists)
        (state,) = get(client, "/v1/limits")
        assert (state["WindowName"], state["Shown"]) == (name, shown)


def test_confirmed_showings_count_when_they_are_seen(open_shop: Open) -> None:
    client = open_shop(asked=("seller=small<=0.5",), counts="confirmed")
    answer = client.get("/api/recommend/c1?n=6")
    items, name = answer.json(), answer.headers["X-List-Id"]
    inside = [item for item in items if item in SMALL]
    assert inside

    def state() -> tuple[float, float, float]:
        (limit,) = get(client, "/v1/limits")
        (group,) = limit["Groups"]
        return limit["Shown"], group["Spent"], group["Pending"]

    assert state() == (0, 0, len(inside))
    seen = [
        {"FeedbackType": "read", "UserId": "c1", "ItemId": item, "ListId": name} for item in items
    ]
    for _ in range(2):  # what is seen again counts once
        send(client, "POST", "/api/feedback", seen)
        assert state() == (6, len(inside), 0)


def test_a_change_is_another_limit_that_counts_anew(shop: TestClient) -> None:
    serve(shop, 2)
    change = {"Limit": "popular<=0.25", "Window": "day", "Slack": 7}
    changed = send(shop, "PATCH", "/v1/limits/1", change)
    assert (changed["Id"], changed["Limit"], changed["Window"]) == (2, "popular<=0.25", "day")
    assert (changed["Slack"], changed["Counts"]) == (7, "served")
    serve(shop, 1)
    assert [(one["Id"], one["Shown"]) for one in get(shop, "/v1/limits")] == [(2, 10)]
    old, _ = get(shop, "/v1/limits?ended=true")
    assert (old["Id"], old["Shown"], old["EndedAt"] is None) == (1, 20, False)


def test_a_change_of_one_thing_leaves_the_others(shop: TestClient) -> None:
    send(shop, "PATCH", "/v1/limits/1", {"Window": "50 showings"})
    changed = send(shop, "PATCH", "/v1/limits/2", {"Counts": "confirmed"})
    assert (changed["Limit"], changed["Window"]) == ("popular<=0.3", "50 showings")
    assert (changed["Counts"], changed["Slack"]) == ("confirmed", 200)


def test_a_change_of_nothing_keeps_what_was_counted(shop: TestClient) -> None:
    serve(shop, 2)
    for change in ({}, {"Limit": "popular<=0.3", "Slack": 200}):
        same = send(shop, "PATCH", "/v1/limits/1", change)
        assert (same["Id"], same["Shown"], same["EndedAt"]) == (1, 20, None)


def test_a_limit_that_ended_stays_ended(shop: TestClient) -> None:
    serve(shop, 1)
    ended = send(shop, "DELETE", "/v1/limits/1")
    assert (ended["Id"], ended["EndedAt"] is None) == (1, False)
    serve(shop, 1)
    assert get(shop, "/v1/limits") == []
    assert get(shop, "/v1/limits/1")["Shown"] == 10
    for method, content in (("DELETE", None), ("PATCH", {"Slack": 5})):
        assert shop.request(method, "/v1/limits/1", json=content).status_code == 409
    assert send(shop, "POST", "/v1/limits", {"Limit": "popular<=0.3"})["Id"] == 2


def test_the_same_limit_is_kept_once(shop: TestClient) -> None:
    for same in ("popular<=0.3", "popular<=0.30", "popular<=0.3;scope=all"):
        refused = shop.post("/v1/limits", json={"Limit": same})
        assert refused.status_code == 409
        assert refused.json() == {
            "error": "popular<=0.3 is in force already",
            "remedy": "change or end that one",
        }


def test_a_change_to_a_limit_that_is_kept_already_changes_nothing(shop: TestClient) -> None:
    send(shop, "POST", "/v1/limits", {"Limit": "popular<=0.5"})
    assert shop.patch("/v1/limits/2", json={"Limit": "popular<=0.3"}).status_code == 409
    assert [one["Id"] for one in get(shop, "/v1/limits")] == [1, 2]


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    (
        {"Limit": "popular=0.3"},
        "'popular=0.3', position 1: 'popular' is no column",
        'give popular<=0.4, or "popular" in quotes if it is one',
    ),
    (
        {"Limit": "popular<=40"},
        "'popular<=40', position 10: '40' is no share",
        "give a number from 0 to 1, not a percentage",
    ),
    (
        {"Limit": "gini<=0.8"},
        "gini<=0.8: the service limits groups of items",
        "give a group",
    ),
    (
        {"Limit": "popular<=0.4;scope=list"},
        "popular<=0.4;scope=list: the service counts all showings",
        "leave out its scope",
    ),
    (
        {"Limit": "popular<=0.4;labels=first"},
        "popular<=0.4;labels=first: a showing counts under the label of its epoch",
        "leave out labels",
    ),
    (
        {"Limit": "brand=A<=0.4"},
        "'brand=A<=0.4': no column 'brand'; there are seller, kind",
        "give the items a label of this name: PATCH /api/item/{item-id}",
    ),
    (
        {"Limit": "seller=huge<=0.4"},
        "'seller=huge<=0.4': no item has the attribute value 'huge'",
        "the values are big, small",
    ),
    (
        {"Limit": "popular<=0.4", "Window": "week"},
        "window 'week': when should it begin anew?",
        "give always, day or 10000 showings",
    ),
    (
        {"Limit": "popular<=0.4", "Counts": "all"},
        'Counts = "all"',
        "give one of served, confirmed",
    ),
    ({"Limit": "popular<=0.4", "Slack": 0}, "Slack = 0", "give at least 1"),
    ({"Limit": ""}, 'Limit = ""', "give at least 1 character"),
    ({}, "Limit is missing", "give Limit"),
    (
        {"limit": "popular<=0.4"},
        "Limit is missing",
        "give Limit",
    ),
]


def test_a_limit_that_cannot_be_kept_is_refused_with_the_reason(shop: TestClient) -> None:
    for body, error, remedy in REFUSED:
        refused = shop.post("/v1/limits", json=body)
        assert refused.status_code == 422, body
        assert refused.json() == {"error": error, "remedy": remedy}
    assert len(get(shop, "/v1/limits?ended=true")) == 1


def test_a_limit_that_is_not_there(shop: TestClient) -> None:
    missing = {"error": "there is no limit 9", "remedy": "GET /v1/limits lists them"}
    for method, content in (("GET", None), ("PATCH", {}), ("DELETE", None)):
        answer = shop.request(method, "/v1/limits/9", json=content)
        assert (answer.status_code, answer.json()) == (404, missing)
