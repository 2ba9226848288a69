"""Calls as the clients of Gorse make them (Python, TypeScript and Go): they are answered alike.

Paths, headers and fields are those of Gorse's clients. What differs is in docs/service-api.md.
"""

import json
from typing import Any

import pytest
from api_client import TestClient, get, send, wait_for

ITEM = """{
    "ItemId": "gorse-io:gorse", "IsHidden": false, "Labels": {"topics": ["recommendation", "go"]},
    "Categories": ["go", "search"], "Timestamp": "2022-02-22", "Comment": "an engine"
}"""
ITEM_OF_GO = """{
    "ItemId": "from-go", "IsHidden": true, "Labels": null, "Categories": null,
    "Timestamp": "0001-01-01T00:00:00Z", "Comment": ""
}"""
PATCH_OF_PYTHON = """{
    "Categories": null, "Comment": "changed", "IsHidden": null, "Labels": null, "Timestamp": null
}"""
USER = '{"UserId": "bob", "Labels": ["engineer", "hangzhou"], "Comment": "an engineer"}'
USER_OF_GO = '{"UserId": "eve", "Labels": null, "Subscribe": ["go"], "Comment": ""}'
FEEDBACK = """[
    {"FeedbackType": "star", "UserId": "bob", "ItemId": "a1", "Timestamp": "2022-02-24"},
    {"FeedbackType": "star", "UserId": "bob", "ItemId": "a2", "Value": 1.0,
     "Timestamp": "2022-02-25T10:11:12Z", "Comment": "again"},
    {"FeedbackType": "like", "UserId": "bob", "ItemId": "a3", "Value": 0,
     "Timestamp": "2022-02-26 10:11:12", "Updated": "2022-02-27T00:00:00Z"},
    {"FeedbackType": "like", "UserId": "bob", "ItemId": "a4", "Timestamp": ""},
    {"FeedbackType": "like", "UserId": "bob", "ItemId": "a5", "Timestamp": "0001-01-01T00:00:00Z"}
]"""


def sent(client: TestClient, method: str, path: str, text: str) -> Any:
    """The answer to a body just as it is written above."""
    headers = {"Content-Type": "application/json", "X-API-Key": ""}  # no key was configured
    answer = client.request(method, path, content=text.encode(), headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_an_item(shop: TestClient) -> None:
    assert sent(shop, "POST", "/api/item", ITEM) == {"RowAffected": 1}
    assert get(shop, "/api/item/gorse-io:gorse") == {
        **json.loads(ITEM),
        "Timestamp": "2022-02-22T00:00:00Z",
    }
    assert sent(shop, "PATCH", "/api/item/gorse-io:gorse", PATCH_OF_PYTHON) == {"RowAffected": 1}
    changed = get(shop, "/api/item/gorse-io:gorse")
    assert changed["Comment"] == "changed"
    assert changed["Labels"] == {"topics": ["recommendation", "go"]}
    assert changed["Categories"] == ["go", "search"]


def test_an_item_with_fields_that_were_not_set(shop: TestClient) -> None:
    assert sent(shop, "POST", "/api/items", f"[{ITEM}, {ITEM_OF_GO}]") == {"RowAffected": 2}
    assert get(shop, "/api/item/from-go") == {
        "ItemId": "from-go",
        "IsHidden": True,
        "Labels": [],
        "Categories": [],
        "Timestamp": "0001-01-01T00:00:00Z",
        "Comment": "",
    }
    page = get(shop, "/api/items?n=1000&cursor=")
    assert sorted(page) == ["Cursor", "Items"]
    assert len(page["Items"]) == 65


def test_a_user(shop: TestClient) -> None:
    assert sent(shop, "POST", "/api/user", USER) == {"RowAffected": 1}
    assert sent(shop, "POST", "/api/users", f"[{USER}, {USER_OF_GO}]") == {"RowAffected": 2}
    assert get(shop, "/api/user/bob") == json.loads(USER)
    assert get(shop, "/api/user/eve") == {"UserId": "eve", "Labels": [], "Comment": ""}
    change = '{"Labels": null, "Subscribe": null, "Comment": "moved"}'
    assert sent(shop, "PATCH", "/api/user/bob", change) == {"RowAffected": 1}
    assert get(shop, "/api/user/bob") == {**json.loads(USER), "Comment": "moved"}
    page = get(shop, "/api/users?n=10&cursor=")
    assert [one["UserId"] for one in page["Users"]] == ["bob", "eve"]
    assert page["Cursor"] == ""


@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_feedback(shop: TestClient, method: str) -> None:
    assert sent(shop, method, "/api/feedback", FEEDBACK) == {"RowAffected": 5}
    events = get(shop, "/api/user/bob/feedback")
    assert [(one["ItemId"], one["Value"]) for one in events] == [
        ("a1", 1.0),
        ("a2", 1.0),
        ("a3", 0.0),
        ("a4", 1.0),
        ("a5", 1.0),
    ]
    assert [one["Timestamp"] for one in events[:3]] == [
        "2022-02-24T00:00:00Z",
        "2022-02-25T10:11:12Z",
        "2022-02-26T10:11:12Z",
    ]
    # a time that was not set is now
    assert events[3]["Timestamp"] == events[4]["Timestamp"] > "2026"
    assert [one["ItemId"] for one in get(shop, "/api/user/bob/feedback/star")] == ["a1", "a2"]
    assert [one["ItemId"] for one in get(shop, "/api/item/a3/feedback/")] == ["a3"]
    page = get(shop, "/api/feedback/like?n=2")
    assert [one["ItemId"] for one in page["Feedback"]] == ["a3", "a4"]
    rest = get(shop, f"/api/feedback/like?n=2&cursor={page['Cursor']}")
    assert ([one["ItemId"] for one in rest["Feedback"]], rest["Cursor"]) == (["a5"], "")


def test_recommendations(free_shop: TestClient) -> None:
    send(free_shop, "PUT", "/api/item/a5/category/book")
    whole = get(free_shop, "/api/recommend/bob?n=3")
    # clients write the category into the path, and nothing where there is none
    assert get(free_shop, "/api/recommend/bob/?n=3&offset=0") == whole
    assert get(free_shop, "/api/recommend/bob/book?n=3&offset=0") == ["a5"]
    scored = get(free_shop, "/api/recommend/bob/?n=3", headers={"X-API-Version": "2"})
    assert [one["Id"] for one in scored] == whole
    assert [sorted(one) for one in scored] == [["Id", "Score"]] * 3
    assert get(free_shop, "/api/recommend/bob/?n=3", headers={"X-API-Version": "1"}) == whole


def test_what_only_gorse_does_is_refused_with_the_reason(shop: TestClient) -> None:
    paged = shop.get("/api/recommend/bob/?n=3&offset=3")
    assert paged.status_code == 422
    assert paged.json() == {
        "error": "offset = 3: every call is a new list, which has no other pages",
        "remedy": "ask for a longer list (n), or leave out what was shown (exclude)",
    }
    written = shop.get("/api/recommend/bob/?n=3&write-back-type=read&write-back-delay=10m")
    assert written.status_code == 422
    assert written.json() == {
        "error": "write-back-type = read: lists are recorded by themselves",
        "remedy": "leave it out, and send what was seen as feedback with the ListId",
    }
    searched = shop.get("/api/items?q=shoe&n=10")
    assert searched.status_code == 422
    assert searched.json() == {
        "error": "q = shoe: items are not searched here",
        "remedy": "leave it out, and page",
    }
    for path in ("popular", "latest", "item/a1/neighbors", "user/bob/neighbors"):
        assert shop.get(f"/api/{path}").status_code == 404
    assert shop.post("/api/session/recommend", json=[]).status_code == 404


def test_health(shop: TestClient) -> None:
    wait_for(lambda: shop.get("/api/health/ready").status_code == 200, "the model")
    assert get(shop, "/api/health/ready")["Ready"] is True
