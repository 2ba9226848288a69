"""GET /api/recommend: whose list, of what, how long, and what the user did before."""

import polars as pl
import pytest
from api_client import TestClient, get, recorded, send

import fairhorizon as fh
from fairhorizon.data.synthetic import synthetic
from fairhorizon.model.model import Model

pytestmark = pytest.mark.slow

ARTICLES = 63


@pytest.fixture(scope="module")
def plain() -> Model:
    """The same model under a limit that allows everything: an oracle for lists without any."""
    log = synthetic(40, 60, 12, seed=3).interactions
    rows = {
        "customer": [f"c{user}" for user in log.users.tolist()],
        "sku": [f"a{item}" for item in log.items.tolist()],
        "day": [86_400 * row for row in range(len(log))],
    }
    numbers = range(ARTICLES)
    articles = {
        "sku": [f"a{number}" for number in numbers],
        "seller": ["big" if number % 3 else "small" for number in numbers],
        "kind": [f"k{number % 5}" for number in numbers],
    }
    whole = fh.load(pl.DataFrame(rows), user="customer", item="sku", time="day", name="shop")
    return fh.fit(whole, "ease+lists", limits=["popular<=1"], items=pl.DataFrame(articles))


def taken(user: str) -> set[str]:
    log = synthetic(40, 60, 12, seed=3).interactions
    rows = zip(log.users.tolist(), log.items.tolist(), strict=True)
    return {f"a{item}" for who, item in rows if f"c{who}" == user}


def test_lists_without_limits_are_those_of_the_model(free_shop: TestClient, plain: Model) -> None:
    for user in (f"c{number}" for number in range(12)):
        expected = plain.recommend([user], 8).sort("rank")["item"].to_list()
        assert get(free_shop, f"/api/recommend/{user}?n=8") == expected


def test_a_list_is_recorded_as_it_is_answered(shop: TestClient, url: str) -> None:
    first = shop.get("/api/recommend/c3", headers={"X-API-Version": "2"})
    second = shop.get("/api/recommend/c4?n=2")
    rows = recorded(url)
    assert [row.number for row in rows] == [1, 2]
    assert [row.id for row in rows] == [first.headers["X-List-Id"], second.headers["X-List-Id"]]
    assert [row.user_id for row in rows] == ["c3", "c4"]
    assert [row.source for row in rows] == ["recommend", "recommend"]
    assert [str(row.model_id) for row in rows] == [first.headers["X-Model"]] * 2 == ["1", "1"]
    assert [one["Id"] for one in first.json()] == rows[0].items
    assert [one["Score"] for one in first.json()] == rows[0].scores
    assert second.json() == rows[1].items
    assert len(rows[0].items) == 10  # the length of the settings
    assert len(rows[1].items) == 2


def test_the_longest_list_has_all_that_the_user_has_not_taken(free_shop: TestClient) -> None:
    shown = get(free_shop, "/api/recommend/c5?n=100")
    everything = {f"a{number}" for number in range(ARTICLES)}
    assert len(shown) == ARTICLES - len(taken("c5"))
    assert sorted(shown) == sorted(everything - taken("c5"))


def test_a_short_list_says_how_many_places_are_missing(shop: TestClient, url: str) -> None:
    def missing(path: str) -> tuple[int, int]:
        answer = shop.get(path)
        return len(answer.json()), int(answer.headers["X-Missing"])

    assert missing("/api/recommend/c5") == (10, 0)
    n_open = ARTICLES - len(taken("c5"))
    send(shop, "DELETE", "/v1/limits/1")
    assert missing("/api/recommend/c5?n=100") == (n_open, ARTICLES - n_open)
    for item in ("a61", "a62"):
        send(shop, "PUT", f"/api/item/{item}/category/late")
    assert missing("/api/recommend/c5/late") == (2, 0)  # there are no more of this category
    for item in ("a61", "a62"):
        send(shop, "PATCH", f"/api/item/{item}", {"IsHidden": True})
    assert missing("/api/recommend/c5/late") == (0, 2)
    assert [row.missing for row in recorded(url)] == [0, ARTICLES - n_open, 0, 2]


def test_one_item_is_the_best_one(free_shop: TestClient) -> None:
    assert get(free_shop, "/api/recommend/c6?n=1") == get(free_shop, "/api/recommend/c6")[:1]


def test_items_are_in_all_categories_asked_for(free_shop: TestClient) -> None:
    for item, categories in {"a5": ["red", "shoe"], "a6": ["shoe"], "a7": ["red"]}.items():
        send(free_shop, "PATCH", f"/api/item/{item}", {"Categories": categories})
    path = "/api/recommend/somebody-new"
    assert sorted(get(free_shop, f"{path}?category=shoe")) == ["a5", "a6"]
    assert get(free_shop, f"{path}?category=shoe&category=red") == ["a5"]
    assert sorted(get(free_shop, f"{path}/red")) == ["a5", "a7"]
    assert get(free_shop, f"{path}/red?category=shoe") == ["a5"]
    assert get(free_shop, f"{path}?category=hat") == []


def test_what_is_excluded_makes_room_for_the_next(free_shop: TestClient) -> None:
    whole = get(free_shop, "/api/recommend/c7?n=5")
    path = f"/api/recommend/c7?n=3&exclude={whole[0]}&exclude={whole[2]}&exclude=unknown"
    assert get(free_shop, path) == [whole[1], whole[3], whole[4]]


def test_somebody_new_gets_the_list_of_a_history_that_begins_with_the_first_event(
    free_shop: TestClient, plain: Model
) -> None:
    def expected(*history: str) -> list[str]:
        lists = plain.recommend(k=6, histories={"dora": list(history)})
        return lists.sort("rank")["item"].to_list()

    assert get(free_shop, "/api/recommend/dora?n=6") == expected()
    like = {"FeedbackType": "like", "UserId": "dora", "ItemId": "a11"}
    send(free_shop, "POST", "/api/feedback", [like])
    assert get(free_shop, "/api/recommend/dora?n=6") == expected("a11")
    send(free_shop, "POST", "/api/feedback", [{**like, "ItemId": "a2"}])
    assert get(free_shop, "/api/recommend/dora?n=6") == expected("a11", "a2")


def test_what_was_taken_or_refused_is_not_shown_again(free_shop: TestClient) -> None:
    before = get(free_shop, "/api/recommend/c8?n=100")
    events = [
        {"FeedbackType": kind, "UserId": "c8", "ItemId": item}
        for kind, item in zip(("like", "dislike", "hide", "report"), before, strict=False)
    ]
    assert send(free_shop, "POST", "/api/feedback", events) == {"RowAffected": 4}
    after = get(free_shop, "/api/recommend/c8?n=100")
    assert sorted(after) == sorted(before[4:])


def test_what_was_only_seen_is_shown_again(free_shop: TestClient) -> None:
    before = get(free_shop, "/api/recommend/c9?n=5")
    events = [{"FeedbackType": "read", "UserId": "c9", "ItemId": item} for item in before]
    send(free_shop, "POST", "/api/feedback", events)
    assert get(free_shop, "/api/recommend/c9?n=5") == before


def test_hidden_and_deleted_items_come_back_when_they_are_shown_or_inserted_again(
    free_shop: TestClient,
) -> None:
    whole = get(free_shop, "/api/recommend/c10?n=4")
    first, second = f"/api/item/{whole[0]}", f"/api/item/{whole[1]}"
    send(free_shop, "PATCH", first, {"IsHidden": True})
    send(free_shop, "DELETE", second)
    assert get(free_shop, "/api/recommend/c10?n=2") == whole[2:]
    send(free_shop, "PATCH", first, {"IsHidden": False})
    assert get(free_shop, "/api/recommend/c10?n=3") == [whole[0], *whole[2:]]
    send(free_shop, "POST", "/api/item", {"ItemId": whole[1]})
    assert get(free_shop, "/api/recommend/c10?n=4") == whole


def test_a_new_item_can_be_shown_and_counts_by_its_labels(shop: TestClient, url: str) -> None:
    new = {"ItemId": "fresh", "Labels": {"seller": "small"}, "Categories": ["new"]}
    send(shop, "POST", "/api/item", new)
    limit = send(shop, "POST", "/v1/limits", {"Limit": "seller=small>=0.1"})
    assert get(shop, "/api/recommend/c11?category=new") == ["fresh"]
    groups = get(shop, f"/v1/limits/{limit['Id']}")["Groups"]
    assert [group["Spent"] for group in groups] == [1.0]
    assert recorded(url)[-1].items == ["fresh"]


def test_without_a_model_lists_have_to_wait_for_one(open_shop: object) -> None:
    client = open_shop(run=None)  # type: ignore[operator]
    refused = client.get("/api/recommend/c1")
    assert refused.status_code == 503
    assert refused.json() == {
        "error": "there is no model yet",
        "remedy": "promote one: POST /v1/models, or start with --run",
    }
