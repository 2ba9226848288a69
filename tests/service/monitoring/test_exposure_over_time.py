"""GET /v1/exposure on a history that was worked out by hand."""

from datetime import UTC, datetime

import pytest
from asgi_client import AsgiClient
from recorded_lists import ENDED, POPULAR, SELLERS, T, fill

from fairhorizon.service.app import build_app
from fairhorizon.service.background import Service
from fairhorizon.service.settings import Role, ServiceSettings
from fairhorizon.service.store import keys
from fairhorizon.service.store.database import Database

HOUR = 3600


def iso(time: int) -> str:
    return datetime.fromtimestamp(time, UTC).isoformat().replace("+00:00", "Z")


def client_of(database: Database, **settings: object) -> AsgiClient:
    service = Service(database, ServiceSettings.model_validate(settings))
    return AsgiClient(build_app(service))


@pytest.fixture
def client(database: Database) -> AsgiClient:
    fill(database)
    return client_of(database)


def asked(client: AsgiClient, begin: int = T, end: int = T + 7260, step: int | None = HOUR):
    query = {"from": iso(begin), "to": iso(end)} | ({} if step is None else {"step": step})
    answer = client.get("/v1/exposure", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.slow
def test_shares_step_by_step(client: AsgiClient) -> None:
    found = asked(client)
    assert (found["From"], found["To"], found["Step"]) == (iso(T), iso(T + 7260), HOUR)
    series = {(one["Id"], one["Group"]): one for one in found["Series"]}
    assert list(series) == [
        (POPULAR, "popular"),
        (SELLERS, "seller=x"),
        (SELLERS, "seller=y"),
        (ENDED, "seller=x"),
    ]

    def points(limit: int, group: str) -> list[tuple[object, ...]]:
        rows = series[limit, group]["Points"]
        names = ("Time", "Shown", "Spent", "Share", "Price")
        assert all(list(row) == list(names) for row in rows)
        return [tuple(row.values()) for row in rows]

    times = [iso(T), iso(T + HOUR), iso(T + 2 * HOUR)]
    # nothing of the group was shown in the later steps, so nobody knows its price there
    assert points(POPULAR, "popular") == [
        (times[0], 4, 2, 0.5, 0.1),
        (times[1], 2, 0, 0, None),
        (times[2], 2, 0, 0, None),
    ]
    # the window of the first day ends before the last step, which is of the same limit
    assert points(SELLERS, "seller=x") == [
        (times[0], 4, 3, 0.75, 0.1),
        (times[1], 2, 1, 0.5, 0.3),
        (times[2], 2, 1, 0.5, 0.3),
    ]
    assert points(SELLERS, "seller=y") == [
        (times[0], 4, 2, 0.5, 0.1),
        (times[1], 2, 2, 1, 0.3),
        (times[2], 2, 0, 0, None),
    ]
    assert points(ENDED, "seller=x") == [(times[0], 4, 3, 0.75, 0.1)]
    assert (series[ENDED, "seller=x"]["Asked"], series[ENDED, "seller=x"]["IsFloor"]) == (0.2, True)
    assert (series[POPULAR, "popular"]["Asked"], series[POPULAR, "popular"]["IsFloor"]) == (
        0.4,
        False,
    )


def test_items_and_providers_in_full_hours(client: AsgiClient) -> None:
    found = asked(client, T + 65, T + 7231)  # within the first and the last hour
    assert (found["From"], found["To"]) == (iso(T + 60), iso(T + 7260))
    assert (found["ItemsFrom"], found["ItemsTo"]) == (iso(T), iso(T + 3 * HOUR))
    # a 3, b 2, c 2, d 1, and e, which may be shown; f is hidden
    assert (found["Showings"], found["Items"]) == (8, 4)
    # 0 1 2 2 3: (1*4*1 + 2*3*1 + 3*2*0 + 4*1*1) / (5 * 8)
    assert found["Gini"] == pytest.approx(14 / 40)
    # c is sold by both, and nobody sells d
    assert (found["ProviderColumn"], found["ProviderCount"]) == ("seller", 3)
    assert found["Providers"] == [
        {"Provider": "x", "Shown": 5, "Share": 5 / 8},
        {"Provider": "y", "Shown": 4, "Share": 4 / 8},
        {"Provider": "z", "Shown": 0, "Share": 0.0},
    ]
    # the list of the first minute is not in the series, because minutes are known there
    popular = found["Series"][0]
    assert [(one["Shown"], one["Spent"]) for one in popular["Points"]] == [(4, 1), (2, 0)]


def test_labels_of_then_and_of_now(client: AsgiClient) -> None:
    found = asked(client)
    # a left and b entered, and they have 4 of the 6 showings until the end of that hour
    assert found["Churn"] == [
        {"Epoch": 2, "Time": iso(T + 3650), "Entered": 1, "Left": 1, "Share": 4 / 6}
    ]
    # as it was counted, popular items have 2 of 8; b alone is popular now, and has 2 of 8
    assert found["Retrospective"] == [{"Limit": "popular<=0.4", "Group": "popular", "Share": 0.25}]
    first_hour = asked(client, T, T + HOUR)
    # a has 2 of 4 as it was counted, and b 1 of 4 by the labels of now
    assert first_hour["Series"][0]["Points"][0]["Share"] == 0.5
    assert first_hour["Retrospective"][0]["Share"] == 0.25
    assert first_hour["Churn"] == []


def test_another_column_names_providers(database: Database) -> None:
    fill(database)
    found = asked(client_of(database, provider="brand"))
    assert (found["ProviderColumn"], found["Providers"]) == ("brand", [])


@pytest.mark.slow
@pytest.mark.parametrize("step", [60, 90, 120, 300, 1740, 3600, 86_400])
def test_sums_do_not_depend_on_the_step(client: AsgiClient, step: int) -> None:
    found = asked(client, T - 120, T + 7300, step)
    sums = {
        (one["Id"], one["Group"]): (
            sum(point["Shown"] for point in one["Points"]),
            sum(point["Spent"] for point in one["Points"]),
        )
        for one in found["Series"]
    }
    assert sums == {
        (POPULAR, "popular"): (8, 2),
        (SELLERS, "seller=x"): (8, 5),
        (SELLERS, "seller=y"): (8, 4),
        (ENDED, "seller=x"): (4, 3),
    }


def test_a_limit_that_ended_before_is_not_in_it(client: AsgiClient) -> None:
    found = asked(client, T + HOUR, T + 7260)
    assert {one["Id"] for one in found["Series"]} == {POPULAR, SELLERS}


def test_by_itself_it_is_about_the_last_day(client: AsgiClient) -> None:
    found = client.get("/v1/exposure").json()
    begin, end = (datetime.fromisoformat(found[name]) for name in ("From", "To"))
    assert 86_400 <= (end - begin).total_seconds() <= 86_460
    assert found["Step"] == 900  # a hundredth is 864 seconds, in whole minutes 900
    assert (found["Showings"], found["Gini"], found["Providers"][0]["Share"]) == (0, None, None)
    assert [one["Points"] for one in found["Series"]] == [[], [], []]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"step": 59}, "at least 60"),
        ({"step": 2_592_001}, "at most 2"),
        ({"from": iso(T), "to": iso(T)}, "give a `from` before `to`"),
        ({"from": iso(T), "to": iso(T + 86_400 * 40), "step": 60}, "at least 1740 seconds"),
        ({"from": "1970-01-01", "to": "9000-01-01", "step": 2_592_000}, "at most 60000 days"),
        ({"from": "0001-01-01", "to": "2020-01-01"}, "between 1970 and 9999"),
        ({"from": "yesterday"}, "a time as in"),
    ],
)
def test_what_cannot_be_told_is_refused(
    client: AsgiClient, query: dict[str, object], said: str
) -> None:
    answer = client.get("/v1/exposure", params=query)
    assert answer.status_code == 422
    assert said in answer.json()["remedy"]


def test_the_step_that_is_advised_is_allowed(client: AsgiClient) -> None:
    asked(client, T, T + 86_400 * 40, 1740)


def test_a_key_of_role_read_is_needed_where_there_are_keys(client: AsgiClient) -> None:
    database: Database = client.app.state.service.database
    with database.writing() as connection:
        key = keys.make(database, connection, "eve", Role.READ)
    assert client.get("/v1/exposure").status_code == 401
    assert client.get("/v1/exposure", headers={"X-API-Key": key}).status_code == 200
