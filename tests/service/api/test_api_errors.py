"""Every error says what is wrong and how to mend it, in words of whoever called."""

from collections.abc import Iterator
from typing import Any

import pytest
from api_client import TestClient, get

from fairhorizon.service.settings import LARGEST_BODY

JSON = {"content-type": "application/json"}
LONG = "x" * 257
TIME = "give a time as in 2026-11-17T12:00:00Z, or seconds since 1970"


def test_a_body_that_is_not_json(shop: TestClient) -> None:
    for content, error in (
        (b"{", "the body is not JSON: Expecting property name enclosed in double quotes"),
        (b"ItemId=a1", "the body is not JSON: Expecting value"),
        (b"[1,]", "the body is not JSON: "),
        (b'{"ItemId": "\xff"}', "the body cannot be read"),
        (b"[" * 100_000, "the body cannot be read"),
        (b'{"ItemId": ' + b"9" * 5000 + b"}", "the body cannot be read"),
    ):
        for path in ("/api/item", "/api/feedback", "/v1/limits"):
            refused = shop.post(path, content=content, headers=JSON)
            assert refused.status_code == 400
            assert refused.json()["error"].startswith(error)
            assert refused.json()["remedy"].startswith("send JSON in UTF-8")


def test_a_path_that_is_not_utf8(shop: TestClient) -> None:
    refused = shop.get("/api/item/%ff")
    assert refused.status_code == 400
    assert refused.json() == {
        "error": "the path is not UTF-8",
        "remedy": "write every other byte than ASCII as %XX of UTF-8",
    }


def test_nothing_is_there(shop: TestClient) -> None:
    for path in ("/nowhere", "/api", "/api/items/a1", "/v2/limits"):
        refused = shop.get(path)
        assert refused.status_code == 404
        assert refused.json() == {
            "error": "nothing is at this address",
            "remedy": "see /docs for what there is",
        }


def test_a_method_that_does_not_go_with_the_path(shop: TestClient) -> None:
    for method, path in (
        ("PUT", "/v1/limits"),
        ("DELETE", "/api/items"),
        ("POST", "/api/recommend/c1"),
        ("GET", "/v1/rank"),
        ("PATCH", "/api/feedback"),
        ("OPTIONS", "/api/items"),
    ):
        refused = shop.request(method, path)
        assert refused.status_code == 405
        assert refused.json() == {
            "error": "this address does not go with this method",
            "remedy": "see /docs for what there is",
        }
        assert refused.headers["Allow"]


def test_a_body_that_is_too_large(shop: TestClient) -> None:
    too_large = {
        "error": "the body has more than 16,777,216 bytes",
        "remedy": "send it in several calls",
    }
    announced = shop.post("/api/feedback", content=b" " * (LARGEST_BODY + 1), headers=JSON)
    assert (announced.status_code, announced.json()) == (413, too_large)

    def parts() -> Iterator[bytes]:
        for _ in range(17):
            yield b" " * 2**20

    in_parts = shop.post("/api/feedback", content=parts(), headers=JSON)
    assert "content-length" not in in_parts.request.headers
    assert (in_parts.status_code, in_parts.json()) == (413, too_large)
    most = shop.post("/api/feedback", content=b"[]" + b" " * (LARGEST_BODY - 2), headers=JSON)
    assert (most.status_code, most.json()) == (200, {"RowAffected": 0})


EVENT = {"FeedbackType": "like", "UserId": "c1", "ItemId": "a1"}
UNSENDABLE = "give text without NUL characters and lone surrogates"


REFUSED: list[tuple[str, str, Any, str, str]] = [
    ("GET", "/api/recommend/c1?n=0", None, "n = 0", "give at least 1"),
    ("GET", "/api/recommend/c1?n=101", None, "n = 101", "give at most 100"),
    ("GET", "/api/recommend/c1?n=ten", None, "n = ten", "give a whole number"),
    ("GET", "/api/recommend/c1?n=1.5", None, "n = 1.5", "give a whole number"),
    ("GET", "/api/recommend/c1?n=", None, "n = ", "give a whole number"),
    (
        "GET",
        "/api/recommend/c1?category=",
        None,
        "category[0] = ",
        "give at least 1 character",
    ),
    (
        "GET",
        f"/api/recommend/c1?exclude=a&exclude={LONG}",
        None,
        f"exclude[1] = {'x' * 77}...",
        "give at most 256 characters",
    ),
    (
        "GET",
        "/api/recommend/c1?" + "&".join(["category=x"] * 21),
        None,
        "category = " + str(["x"] * 21)[:77] + "...",
        "give at most 20 values",
    ),
    ("GET", f"/api/item/{LONG}", None, f"item = {'x' * 77}...", "give at most 256 characters"),
    ("GET", "/api/user/a%00b", None, "user = a\x00b", UNSENDABLE),
    ("GET", "/api/items?n=0", None, "n = 0", "give at least 1"),
    ("GET", "/api/users?n=1001", None, "n = 1001", "give at most 1000"),
    ("GET", "/api/items?cursor=%00", None, "cursor = \x00", UNSENDABLE),
    ("GET", "/v1/limits/first", None, "limit = first", "give a whole number"),
    ("GET", "/v1/limits/0", None, "limit = 0", "give at least 1"),
    ("GET", "/v1/limits?ended=maybe", None, "ended = maybe", "give true or false"),
    ("GET", "/v1/jobs/99999999999999999999", None, "job = 9", "give at most 9.0072e+15"),
    ("POST", "/api/item", None, "the body is missing", "send JSON"),
    ("POST", "/api/item", [], "the body is []", "give an object"),
    ("POST", "/api/item", "a1", 'the body is "a1"', "give an object"),
    ("POST", "/api/items", {}, "the body is {}", "give a list"),
    ("POST", "/api/items", [{"ItemId": "a"}, 7], "[1] = 7", "give an object"),
    ("POST", "/api/item", {}, "ItemId is missing", "give ItemId"),
    ("POST", "/api/item", {"ItemId": None}, "ItemId is missing", "give ItemId"),
    ("POST", "/api/item", {"ItemId": 7}, "ItemId = 7", "give text"),
    ("POST", "/api/item", {"ItemId": ""}, 'ItemId = ""', "give at least 1 character"),
    ("POST", "/api/item", {"ItemId": "a\x00"}, 'ItemId = "a\\u0000"', UNSENDABLE),
    (
        "POST",
        "/api/item",
        {"ItemId": "a", "Hidden": True},
        "there is no field Hidden",
        "leave it out (/docs has the fields)",
    ),
    (
        "POST",
        "/api/items",
        [{"ItemId": "a", "IsHidden": "perhaps"}],
        '[0].IsHidden = "perhaps"',
        "give true or false",
    ),
    (
        "POST",
        "/api/item",
        {"ItemId": "a", "Timestamp": "yesterday"},
        'Timestamp = "yesterday"',
        TIME,
    ),
    (
        "POST",
        "/api/item",
        {"ItemId": "a", "Timestamp": "9999-12-31T23:59:59-10:00"},
        'Timestamp = "9999-12-31T23:59:59-10:00"',
        "give a time of the years 1 to 9999",
    ),
    (
        "POST",
        "/api/item",
        {"ItemId": "a", "Categories": "red"},
        'Categories = "red"',
        "give a list",
    ),
    (
        "POST",
        "/api/item",
        {"ItemId": "a", "Categories": ["red"] * 101},
        'Categories = ["red"',
        "give at most 100 values",
    ),
    (
        "POST",
        "/api/item",
        {"ItemId": "a", "Comment": "x" * 10_001},
        'Comment = "xxx',
        "give at most 10000 characters",
    ),
    (
        "POST",
        "/api/item",
        {"ItemId": "a", "Labels": {"a": {"\x00": 1}}},
        'Labels = {"a": {"\\u0000": 1}}',
        UNSENDABLE,
    ),
    (
        "POST",
        "/api/item",
        {"ItemId": "a", "Labels": 2**63},
        "Labels = 9223372036854775808",
        "give whole numbers up to 9223372036854775807",
    ),
    ("PATCH", "/api/item/a1", {"ItemId": "b"}, "there is no field ItemId", "leave it out"),
    ("POST", "/api/user", {"UserId": LONG}, 'UserId = "xxx', "give at most 256 characters"),
    ("PATCH", "/api/user/c1", {"Comment": 1}, "Comment = 1", "give text"),
    ("POST", "/api/feedback", EVENT, 'the body is {"FeedbackType"', "give a list"),
    ("POST", "/api/feedback", [{}], "[0].FeedbackType is missing", "give [0].FeedbackType"),
    (
        "POST",
        "/api/feedback",
        [EVENT, {**EVENT, "FeedbackType": "x" * 65}],
        '[1].FeedbackType = "xxx',
        "give at most 64 characters",
    ),
    (
        "POST",
        "/api/feedback",
        [{**EVENT, "Value": "much"}],
        '[0].Value = "much"',
        "give a number",
    ),
    (
        "POST",
        "/api/feedback",
        [{**EVENT, "EventId": "x" * 256}],
        '[0].EventId = "xxx',
        "give at most 255 characters",
    ),
    ("POST", "/api/feedback", [{**EVENT, "EventId": "\x00"}], "[0].EventId = ", UNSENDABLE),
    (
        "POST",
        "/api/feedback",
        [{**EVENT, "ListId": "0" * 31 + "\n"}],
        "[0].ListId = ",
        "give the X-List-Id that came with the list",
    ),
    ("POST", "/v1/models", {"Folder": ""}, 'Folder = ""', "give at least 1 character"),
]


def test_values_that_are_not_allowed(shop: TestClient) -> None:
    for method, path, body, error, remedy in REFUSED:
        refused = shop.request(method, path, json=body)
        found = refused.json()
        assert refused.status_code == 422, (path, refused.text)
        assert found["error"].startswith(error), (path, found)
        assert found["remedy"].startswith(remedy), (path, found)
        assert sorted(found) == ["error", "remedy"]
        assert len(found["error"]) < 200


def test_what_no_database_can_keep(shop: TestClient) -> None:
    for content, error in (
        (b'{"ItemId": "\\ud800"}', 'ItemId = "\\ud800"'),
        (b'{"ItemId": "a", "\\udfff": 1}', 'the body is "\\udfff"'),
        (b'{"ItemId": "a", "Labels": {"\\udfff": 1}}', 'Labels = {"\\udfff": 1}'),
        (b'{"ItemId": "a", "Labels": NaN}', "Labels = NaN"),
        (b'{"ItemId": "a", "Labels": [1e999]}', "Labels = [Infinity]"),
        (b'{"ItemId": "a", "Labels": ' + b"[" * 22 + b"]" * 22 + b"}", "Labels = [[[["),
    ):
        refused = shop.post("/api/item", content=content, headers=JSON)
        assert refused.status_code == 422
        assert refused.json()["error"].startswith(error)
    assert shop.get("/api/item/a").status_code == 404


def test_labels_may_have_as_many_levels_as_are_allowed(shop: TestClient) -> None:
    deep: Any = 2**63 - 1
    for _ in range(20):
        deep = [deep]
    assert shop.post("/api/item", json={"ItemId": "deep", "Labels": deep}).status_code == 200
    assert get(shop, "/api/item/deep")["Labels"] == deep


def test_a_fault_of_ours_is_answered_without_its_details(
    shop: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("the secret is 123")

    monkeypatch.setattr("fairhorizon.service.api.catalogue.find_item", broken)
    failed = shop.get("/api/item/a1")
    assert failed.status_code == 500
    assert failed.json() == {
        "error": "something went wrong here",
        "remedy": "see the log of the service",
    }
