"""Items and users: insert, read, change, hide, delete, categories, and pages."""

from typing import Any

import pytest
from api_client import TestClient, get, send

pytestmark = pytest.mark.slow

ARTICLES = [f"a{number}" for number in range(63)]  # what the model of the shop brings
COAT: dict[str, Any] = {
    "ItemId": "coat",
    "IsHidden": False,
    "Labels": {"seller": "small", "sizes": ["S", "M"]},
    "Categories": ["warm", "wool"],
    "Timestamp": "2026-02-03T04:05:06Z",
    "Comment": "a grey one",
}
NOTHING: dict[str, Any] = {
    "IsHidden": False,
    "Labels": [],
    "Categories": [],
    "Timestamp": "1970-01-01T00:00:00Z",
    "Comment": "",
}


def test_items_of_the_model_are_there_with_their_columns_as_labels(shop: TestClient) -> None:
    assert get(shop, "/api/item/a7") == {
        **NOTHING,
        "ItemId": "a7",
        "Labels": {"seller": "big", "kind": "k2"},
    }


def test_an_item_is_inserted_changed_replaced_and_deleted(shop: TestClient) -> None:
    assert send(shop, "POST", "/api/item", COAT) == {"RowAffected": 1}
    assert get(shop, "/api/item/coat") == COAT
    change = {"IsHidden": True, "Comment": "sold"}
    assert send(shop, "PATCH", "/api/item/coat", change) == {"RowAffected": 1}
    assert get(shop, "/api/item/coat") == {**COAT, **change}
    more = {
        "Labels": ["warm"],
        "Categories": ["old"],
        "Timestamp": "2026-05-05T00:00:00Z",
        "IsHidden": False,
    }
    send(shop, "PATCH", "/api/item/coat", more)
    assert get(shop, "/api/item/coat") == {**COAT, **change, **more}
    send(shop, "POST", "/api/item", {"ItemId": "coat"})
    assert get(shop, "/api/item/coat") == {**NOTHING, "ItemId": "coat"}
    assert send(shop, "DELETE", "/api/item/coat") == {"RowAffected": 1}
    missing = {"error": "there is no item 'coat'", "remedy": "insert it: POST /api/items"}
    for method, content in (("GET", None), ("PATCH", change), ("DELETE", None)):
        answer = shop.request(method, "/api/item/coat", json=content)
        assert (answer.status_code, answer.json()) == (404, missing)
    send(shop, "POST", "/api/item", COAT)
    assert get(shop, "/api/item/coat") == COAT


def test_of_an_item_that_is_sent_twice_the_last_counts(shop: TestClient) -> None:
    several = [COAT, {"ItemId": "hat"}, {**COAT, "Comment": "a red one"}]
    assert send(shop, "POST", "/api/items", several) == {"RowAffected": 2}
    assert get(shop, "/api/item/coat")["Comment"] == "a red one"


def test_categories_are_added_and_taken_one_by_one(shop: TestClient) -> None:
    send(shop, "POST", "/api/item", COAT)
    path = "/api/item/coat/category"
    assert send(shop, "PUT", f"{path}/new") == {"RowAffected": 1}
    assert send(shop, "PUT", f"{path}/new") == {"RowAffected": 0}
    assert send(shop, "DELETE", f"{path}/warm") == {"RowAffected": 1}
    assert send(shop, "DELETE", f"{path}/warm") == {"RowAffected": 0}
    assert get(shop, "/api/item/coat")["Categories"] == ["wool", "new"]
    assert shop.put("/api/item/none/category/new").status_code == 404
    assert shop.delete("/api/item/none/category/new").status_code == 404


def test_an_item_has_at_most_a_hundred_categories(shop: TestClient) -> None:
    send(shop, "PATCH", "/api/item/a1", {"Categories": [f"c{number}" for number in range(100)]})
    refused = shop.put("/api/item/a1/category/one-more")
    assert refused.status_code == 422
    assert refused.json()["error"] == "item 'a1' has 100 categories"
    assert len(get(shop, "/api/item/a1")["Categories"]) == 100
    assert send(shop, "PUT", "/api/item/a1/category/c7") == {"RowAffected": 0}


def test_a_user_is_inserted_changed_replaced_and_deleted(shop: TestClient) -> None:
    ada = {"UserId": "ada", "Labels": {"age": 36}, "Comment": "first"}
    assert send(shop, "POST", "/api/user", ada) == {"RowAffected": 1}
    assert get(shop, "/api/user/ada") == ada
    assert send(shop, "PATCH", "/api/user/ada", {"Comment": "last"}) == {"RowAffected": 1}
    assert get(shop, "/api/user/ada") == {**ada, "Comment": "last"}
    assert send(shop, "PATCH", "/api/user/ada", {"Labels": ["x"]}) == {"RowAffected": 1}
    assert get(shop, "/api/user/ada") == {**ada, "Comment": "last", "Labels": ["x"]}
    several = [{"UserId": "ada"}, {"UserId": "bob"}, {"UserId": "bob", "Comment": "again"}]
    assert send(shop, "POST", "/api/users", several) == {"RowAffected": 2}
    assert get(shop, "/api/user/ada") == {"UserId": "ada", "Labels": [], "Comment": ""}
    assert get(shop, "/api/user/bob")["Comment"] == "again"
    assert send(shop, "DELETE", "/api/user/ada") == {"RowAffected": 1}
    missing = {"error": "there is no user 'ada'", "remedy": "insert it: POST /api/users"}
    for method, content in (("GET", None), ("PATCH", {"Comment": ""}), ("DELETE", None)):
        answer = shop.request(method, "/api/user/ada", json=content)
        assert (answer.status_code, answer.json()) == (404, missing)


def pages(shop: TestClient, kind: str, n: int, meanwhile: list[str]) -> list[str]:
    """All ids by the cursor, with an insert after every page."""
    name, seen, cursor = {"items": "ItemId", "users": "UserId"}[kind], [], ""
    while True:
        page = get(shop, f"/api/{kind}", params={"n": n, "cursor": cursor})
        seen += [one[name] for one in page[kind.capitalize()]]
        cursor = page["Cursor"]
        if not cursor:
            return seen
        assert len(page[kind.capitalize()]) == n
        if meanwhile:
            send(shop, "POST", f"/api/{kind}", [{name: meanwhile.pop()}])


def test_pages_have_every_item_once(shop: TestClient) -> None:
    assert sorted(pages(shop, "items", 10, [])) == sorted(ARTICLES)
    assert sorted(pages(shop, "items", 9, [])) == sorted(ARTICLES)  # the last page is full
    send(shop, "DELETE", "/api/item/a3")
    send(shop, "PATCH", "/api/item/a4", {"IsHidden": True})
    assert sorted(pages(shop, "items", 1000, [])) == sorted({*ARTICLES} - {"a3"})


def test_pages_have_every_item_once_while_others_come(shop: TestClient) -> None:
    seen = pages(shop, "items", 5, ["a00", "zz", "a35x", "A", "a9a", "0", "m"])
    assert len(set(seen)) == len(seen)
    assert set(ARTICLES) <= set(seen)


def test_pages_have_every_user_once_while_others_come(shop: TestClient) -> None:
    first = [f"user {number}" for number in range(23)]
    send(shop, "POST", "/api/users", [{"UserId": name} for name in first])
    seen = pages(shop, "users", 4, ["user 1x", "user", "zoe", "adam"])
    assert len(set(seen)) == len(seen)
    assert set(first) <= set(seen)


def test_pages_go_on_behind_ids_that_cannot_be_printed(shop: TestClient) -> None:
    names = [
        "\u200fright to left",
        "👩\u200d👩\u200d👧",
        "\ttab",
        "line\nbreak",
        "\u00e9",
        "e\u0301",
    ]
    send(shop, "POST", "/api/users", [{"UserId": name} for name in names])
    assert sorted(pages(shop, "users", 1, [])) == sorted(names)


def test_a_call_has_at_most_ten_thousand_rows(shop: TestClient) -> None:
    refused = shop.post("/api/users", json=[{"UserId": f"u{n}"} for n in range(10_001)])
    assert refused.status_code == 422
    assert refused.json()["remedy"] == "give at most 10000 values"
    most = [{"UserId": f"u{number}"} for number in range(10_000)]
    assert send(shop, "POST", "/api/users", most) == {"RowAffected": 10_000}
