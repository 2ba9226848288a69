"""POST and PUT /api/feedback: every event once, at a time that has come; GET: all of them."""

import time
from datetime import UTC, datetime
from typing import Any

from api_client import TestClient, get, send

LIKE: dict[str, Any] = {"FeedbackType": "like", "UserId": "c1", "ItemId": "a1"}


def added(shop: TestClient, *events: dict[str, Any], method: str = "POST") -> int:
    return int(send(shop, method, "/api/feedback", list(events))["RowAffected"])


def at(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def test_an_event_is_known_by_its_id(shop: TestClient) -> None:
    first, other = {**LIKE, "EventId": "e1"}, {**LIKE, "EventId": "e2"}
    assert added(shop, first, first, {**first, "ItemId": "a2"}) == 1
    assert added(shop, first) == 0
    assert added(shop, first, method="PUT") == 0
    assert added(shop, first, other) == 1
    events = get(shop, "/api/feedback")["Feedback"]
    assert [(one["EventId"], one["ItemId"]) for one in events] == [("e1", "a1"), ("e2", "a1")]


def test_without_an_id_it_is_known_by_its_content(shop: TestClient) -> None:
    timed = {**LIKE, "Timestamp": "2026-01-01T10:00:00Z"}
    assert added(shop, timed, timed) == 1
    assert added(shop, timed, method="PUT") == 0
    assert added(shop, {**timed, "Timestamp": "2026-01-01T11:00:00+01:00"}) == 0  # the same moment
    assert added(shop, {**timed, "Value": 3}) == 0
    others = [
        {**timed, "Timestamp": "2026-01-01T10:00:01Z"},
        {**timed, "FeedbackType": "star"},
        {**timed, "UserId": "c2"},
        {**timed, "ItemId": "a2"},
        {**timed, "ListId": "0" * 32},
        LIKE,
    ]
    assert added(shop, *others) == 6
    assert added(shop, *others, timed) == 0


def test_times_are_kept_as_they_are_sent_in_whatever_order(shop: TestClient) -> None:
    moments = ["2026-03-03T00:00:00Z", "2026-01-01T00:00:00Z", "2026-02-02T12:30:15.250000Z"]
    for number, moment in enumerate(moments):
        assert added(shop, {**LIKE, "Timestamp": moment, "ItemId": f"a{number}"}) == 1
    events = get(shop, "/api/user/c1/feedback")
    assert [one["Timestamp"] for one in events] == moments
    assert [one["ItemId"] for one in events] == ["a0", "a1", "a2"]


def test_nothing_happens_after_it_was_received(shop: TestClient) -> None:
    before = time.time()
    added(shop, {**LIKE, "Timestamp": at(before + 3600)}, {**LIKE, "ItemId": "a2"})
    for event in get(shop, "/api/feedback")["Feedback"]:
        stored = datetime.fromisoformat(event["Timestamp"]).timestamp()
        assert before - 1 <= stored <= time.time() + 1


def test_batches_of_a_hundred_are_taken_whole_and_once(shop: TestClient) -> None:
    events = [
        {**LIKE, "UserId": f"c{number % 5}", "ItemId": f"a{number}", "EventId": f"e{number}"}
        for number in range(100)
    ]
    assert added(shop, *events) == 100
    assert added(shop, *events[50:], *({**LIKE, "EventId": f"f{n}"} for n in range(50))) == 50
    assert len(get(shop, "/api/user/c3/feedback")) == 20


def test_a_batch_with_a_fault_is_refused_whole(shop: TestClient) -> None:
    refused = shop.post("/api/feedback", json=[LIKE, {**LIKE, "ItemId": ""}])
    assert refused.status_code == 422
    assert refused.json() == {"error": '[1].ItemId = ""', "remedy": "give at least 1 character"}
    assert get(shop, "/api/feedback") == {"Cursor": "", "Feedback": []}


def test_pages_have_every_event_once(shop: TestClient) -> None:
    added(shop, *({**LIKE, "EventId": f"e{number}"} for number in range(45)))
    seen, cursor = [], ""
    for _ in range(5):
        page = get(shop, f"/api/feedback?n=10&cursor={cursor}")
        seen += [one["EventId"] for one in page["Feedback"]]
        cursor = page["Cursor"]
        added(shop, {**LIKE, "EventId": f"meanwhile {cursor}"})
    assert sorted(seen[:45]) == sorted(f"e{number}" for number in range(45))
    assert len(set(seen)) == len(seen)


def test_events_of_a_user_an_item_and_a_type(shop: TestClient) -> None:
    rows = [("like", "u", "i"), ("star", "u", "i"), ("like", "u", "j"), ("like", "v", "i")]
    added(shop, *({"FeedbackType": a, "UserId": b, "ItemId": c} for a, b, c in rows))

    def found(path: str) -> list[tuple[str, str, str]]:
        content = get(shop, path)
        events = content if isinstance(content, list) else content["Feedback"]
        return [(one["FeedbackType"], one["UserId"], one["ItemId"]) for one in events]

    assert found("/api/feedback") == rows
    assert found("/api/feedback/star") == rows[1:2]
    assert found("/api/user/u/feedback") == rows[:3]
    assert found("/api/user/u/feedback/like") == [rows[0], rows[2]]
    assert found("/api/item/i/feedback") == [rows[0], rows[1], rows[3]]
    assert found("/api/item/i/feedback/like") == [rows[0], rows[3]]
    assert found("/api/user/nobody/feedback") == []


def test_the_header_goes_on_where_a_list_of_events_ends(shop: TestClient) -> None:
    added(shop, *({**LIKE, "EventId": f"e{number}"} for number in range(5)))
    first = shop.get("/api/user/c1/feedback?n=3")
    rest = shop.get(f"/api/user/c1/feedback?n=3&cursor={first.headers['X-Cursor']}")
    assert [one["EventId"] for one in first.json()] == ["e0", "e1", "e2"]
    assert [one["EventId"] for one in rest.json()] == ["e3", "e4"]
    assert rest.headers["X-Cursor"] == ""


def test_a_cursor_is_one_of_a_page(shop: TestClient) -> None:
    for cursor in ("x", "-1", "1" * 16, "1.5", "\u0663"):
        refused = shop.get("/api/feedback", params={"cursor": cursor})
        assert refused.status_code == 422
        assert refused.json() == {
            "error": f"cursor = {cursor}",
            "remedy": "give that of a page, or leave it out to begin again",
        }
