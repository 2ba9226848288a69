"""Ids of all kinds go in and come out as they are, on every way."""

from urllib.parse import quote

import pytest
from api_client import TestClient, get, recorded, send

pytestmark = pytest.mark.slow

IDS = [
    "<script>alert(1)</script>",
    "' OR 1=1 --",
    '"; DROP TABLE items; --',
    "../../etc/passwd",
    "..",
    ".",
    "/",
    "//",
    "a/b",
    "a/feedback",
    "a/category/b",
    "feedback",
    "a%2Fb",
    "%",
    "%25",
    "%00",
    "%2e%2e%2f",
    "a b",
    " ",
    "+",
    "a+b",
    "?n=1",
    "#x",
    "a&b=c;d",
    "\\",
    "`id`",
    "${x}",
    "{{7*7}}",
    "{item}",
    "\t",
    "line\nbreak\r\n",
    "é",
    "e\u0301",  # the same letter in two characters is another id
    "\uff21\uff22",
    "日本語",
    "👩\u200d👩\u200d👧",
    "\u202egnp.exe",
    "\u200fa\u200f",
    "\ufeffbom",
    "\uffff",
    "\U0010ffff",
    "null",
    "None",
    "NaN",
    "0",
    "00",
    "-1",
    "1e999",
    "A",
    "a",
    "x" * 256,
    "é" * 256,
    "😀" * 256,
]


def path(name: str) -> str:
    """As one part of a path; clients resolve dots, unless they are written otherwise."""
    return quote(name, safe="") if name.strip(".") else "%2E" * len(name)


def test_items(free_shop: TestClient) -> None:
    items = [{"ItemId": name, "Comment": name, "Labels": {name: name}} for name in IDS]
    assert send(free_shop, "POST", "/api/items", items) == {"RowAffected": len(IDS)}
    for name in IDS:
        assert send(free_shop, "PUT", f"/api/item/{path(name)}/category/{path(name)}") == {
            "RowAffected": 1
        }
        found = get(free_shop, f"/api/item/{path(name)}")
        assert (found["ItemId"], found["Comment"], found["Labels"], found["Categories"]) == (
            name,
            name,
            {name: name},
            [name],
        )
    for name in IDS:
        user = f"/api/recommend/{path(name)}"
        assert get(free_shop, user, params={"category": name}) == [name]
        assert get(free_shop, f"{user}/{path(name)}") == [name]
        assert get(free_shop, user, params={"category": name, "exclude": name}) == []
        body = {"UserId": name, "Candidates": [{"Id": name, "Score": 1}], "Categories": [name]}
        assert send(free_shop, "POST", "/v1/rank", body) == [{"Id": name, "Score": 1.0}]
    assert send(free_shop, "PATCH", f"/api/item/{path(IDS[0])}", {"Comment": "x"})
    for name in IDS:
        assert send(free_shop, "DELETE", f"/api/item/{path(name)}") == {"RowAffected": 1}
        assert free_shop.get(f"/api/item/{path(name)}").status_code == 404
    assert len(get(free_shop, "/api/items?n=1000")["Items"]) == 63


def test_users_and_events(shop: TestClient, url: str) -> None:
    users = [{"UserId": name, "Comment": name} for name in IDS]
    assert send(shop, "POST", "/api/users", users) == {"RowAffected": len(IDS)}
    events = [
        {"FeedbackType": name[:64], "UserId": name, "ItemId": name, "EventId": name[:255]}
        for name in IDS
    ]
    assert send(shop, "POST", "/api/feedback", events) == {"RowAffected": len(IDS)}
    for name, event in zip(IDS, events, strict=True):
        assert get(shop, f"/api/user/{path(name)}")["Comment"] == name
        kind = path(event["FeedbackType"])
        for where in (
            f"user/{path(name)}/feedback",
            f"user/{path(name)}/feedback/{kind}",
            f"item/{path(name)}/feedback",
            f"item/{path(name)}/feedback/{kind}",
        ):
            (found,) = get(shop, f"/api/{where}")
            assert {field: found[field] for field in event} == event
        assert get(shop, f"/api/recommend/{path(name)}?n=1")
    assert [row.user_id for row in recorded(url)] == IDS
    seen = [one["UserId"] for one in get(shop, "/api/users?n=1000")["Users"]]
    assert sorted(seen) == sorted(IDS)
    for name in IDS:
        assert send(shop, "DELETE", f"/api/user/{path(name)}") == {"RowAffected": 1}


def test_what_is_no_id_is_refused_everywhere(shop: TestClient) -> None:
    for name in ("", "\x00", "a\x00", "x" * 257):
        event = {"FeedbackType": "like", "UserId": "c1", "ItemId": "a1"}
        for where, body in (
            ("/api/item", {"ItemId": name}),
            ("/api/user", {"UserId": name}),
            ("/api/feedback", [{**event, "ItemId": name}]),
            ("/api/feedback", [{**event, "UserId": name}]),
            ("/api/feedback", [{**event, "FeedbackType": name}]),
            ("/v1/rank", {"UserId": name, "Candidates": [{"Id": "a1", "Score": 1}]}),
            ("/v1/rank", {"UserId": "c1", "Candidates": [{"Id": name, "Score": 1}]}),
        ):
            assert shop.post(where, json=body).status_code == 422, (where, name)
        for key in ("category", "exclude"):
            answer = shop.get("/api/recommend/c1", params={key: name})
            assert answer.status_code == 422, (key, name)
        if name:
            for where in ("item", "user", "recommend"):
                assert shop.get(f"/api/{where}/{path(name)}").status_code == 422, (where, name)
