"""POST /v1/rank: the candidates of others as lists under the same limits."""

from typing import Any

import pytest
from api_client import Open, TestClient, get, recorded, send

from fairhorizon.service.settings import ServiceSettings

pytestmark = pytest.mark.slow

SMALL = {f"a{number}" for number in range(0, 63, 3)}  # items of small sellers
SCORES = {f"a{number}": float(100 - number) for number in range(20)}


def ranked(client: TestClient, scores: dict[str, float] = SCORES, **more: Any) -> list[str]:
    candidates = [{"Id": item, "Score": score} for item, score in scores.items()]
    body = {"UserId": "c1", "Candidates": candidates, **more}
    return [one["Id"] for one in send(client, "POST", "/v1/rank", body)]


def test_without_limits_the_order_is_that_of_the_scores(free_shop: TestClient) -> None:
    scores = {"a3": -2.5, "a1": 0.0, "a9": 7e8, "a4": 0.5, "a2": -1e9}
    answer = free_shop.post(
        "/v1/rank",
        json={
            "UserId": "somebody",
            "Candidates": [{"Id": item, "Score": score} for item, score in scores.items()],
        },
    )
    order = ["a9", "a4", "a1", "a3", "a2"]
    assert answer.json() == [{"Id": item, "Score": scores[item]} for item in order]


def test_a_list_is_recorded_as_another_recommenders(shop: TestClient, url: str) -> None:
    shown = ranked(shop, N=3)
    (row,) = recorded(url)
    assert (row.items, row.user_id, row.source, row.model_id) == (shown, "c1", "rank", None)
    assert row.scores == [SCORES[item] for item in shown]


def test_length_categories_and_what_is_excluded(free_shop: TestClient) -> None:
    send(free_shop, "PATCH", "/api/item/a5", {"Categories": ["x"]})
    send(free_shop, "PATCH", "/api/item/a6", {"Categories": ["x", "y"]})
    assert ranked(free_shop, N=2) == ["a0", "a1"]
    assert ranked(free_shop) == [f"a{number}" for number in range(10)]
    assert ranked(free_shop, N=3, Exclude=["a0", "a2", "unknown"]) == ["a1", "a3", "a4"]
    assert ranked(free_shop, Categories=["x"]) == ["a5", "a6"]
    assert ranked(free_shop, Categories=["x", "y"]) == ["a6"]
    assert ranked(free_shop, Categories=["z"]) == []
    assert ranked(free_shop, N=100) == list(SCORES)


def test_hidden_and_deleted_items_are_left_out(free_shop: TestClient) -> None:
    send(free_shop, "PATCH", "/api/item/a0", {"IsHidden": True})
    send(free_shop, "DELETE", "/api/item/a1")
    assert ranked(free_shop, N=2) == ["a2", "a3"]


def test_of_a_candidate_that_is_sent_twice_the_last_score_counts(free_shop: TestClient) -> None:
    candidates = [{"Id": "a1", "Score": 9}, {"Id": "a2", "Score": 5}, {"Id": "a1", "Score": 1}]
    body = {"UserId": "c1", "Candidates": candidates}
    assert [one["Id"] for one in send(free_shop, "POST", "/v1/rank", body)] == ["a2", "a1"]


def test_items_that_nobody_described_are_refused(shop: TestClient, url: str) -> None:
    scores = {**SCORES, "x1": 1.0, "x2": 2.0, "x3": 3.0, "x4": 4.0}
    candidates = [{"Id": item, "Score": score} for item, score in scores.items()]
    refused = shop.post("/v1/rank", json={"UserId": "c1", "Candidates": candidates})
    assert refused.status_code == 422
    assert refused.json() == {
        "error": "no item is called 'x1', 'x2', 'x3', ...: its groups are not known",
        "remedy": "describe items first: POST /api/items",
    }
    assert recorded(url) == []


def test_a_limit_is_kept_after_every_list(open_shop: Open) -> None:
    client = open_shop(asked=("seller=small<=0.2",))
    # the seven items of small sellers are the best: without a limit they would fill seven places
    best = {item: score + 1000 * (item in SMALL) for item, score in SCORES.items()}
    shown = inside = 0
    for _ in range(40):
        items = ranked(client, best, N=5)
        shown, inside = shown + len(items), inside + len(SMALL & set(items))
        assert len(items) == 5
        assert inside <= 0.2 * shown
    assert shown == 200
    assert inside == 40  # the limit is used up
    (state,) = get(client, "/v1/limits")
    assert (state["Shown"], state["Groups"][0]["Spent"], state["Kept"]) == (200, 40, True)


def test_both_ways_to_a_list_share_one_budget(open_shop: Open, url: str) -> None:
    """All candidates of rank are of the group: its lists are full while the slack lasts."""
    client = open_shop(asked=("seller=small<=0.2",))
    few = {item: score for item, score in SCORES.items() if item in SMALL}
    slack = ServiceSettings().slack
    for number in range(30):
        get(client, f"/api/recommend/c{number}?n=5")
        ranked(client, few, N=5)
    shown = inside = of_rank = 0
    for row in recorded(url):
        shown, inside = shown + len(row.items), inside + len(SMALL & set(row.items))
        of_rank += row.source == "rank" and len(row.items)
        assert inside <= 0.2 * shown + slack
    assert of_rank == 30 * 5
    (state,) = get(client, "/v1/limits")
    assert (state["Shown"], state["Groups"][0]["Spent"]) == (shown, inside)


def test_it_needs_no_model(open_shop: Open) -> None:
    client = open_shop(run=None)
    items = [{"ItemId": f"i{n}", "Labels": {"shop": "A" if n < 5 else "B"}} for n in range(10)]
    send(client, "POST", "/api/items", items)
    send(client, "POST", "/v1/limits", {"Limit": "shop=A<=0.5"})
    scores = {f"i{number}": 10.0 - number for number in range(10)}
    assert ranked(client, scores, N=4) == ["i0", "i1", "i5", "i6"]


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"N": 0}, "N = 0", "give at least 1"),
    ({"N": 101}, "N = 101", "give at most 100"),
    ({"Candidates": []}, "Candidates = []", "give at least 1 values"),
    ({"Exclude": [""]}, 'Exclude[0] = ""', "give at least 1 character"),
    ({"UserId": None}, "UserId is missing", "give UserId"),
    (
        {"Candidates": [{"Id": "a1", "Score": 1e10}]},
        "Candidates[0].Score = 10000000000.0",
        "give at most 1e+09",
    ),
    (
        {"Candidates": [{"Id": "a1", "Score": "high"}]},
        'Candidates[0].Score = "high"',
        "give a number",
    ),
]


def test_what_is_wrong_with_a_request(shop: TestClient) -> None:
    for change, error, remedy in REFUSED:
        body = {"UserId": "c1", "Candidates": [{"Id": "a1", "Score": 1}], **change}
        refused = shop.post("/v1/rank", json=body)
        assert refused.status_code == 422, change
        assert refused.json() == {"error": error, "remedy": remedy}
