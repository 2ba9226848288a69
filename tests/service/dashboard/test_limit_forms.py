"""Limits through forms: created, changed and ended as by the API, errors beside what was typed."""

import pytest
from asgi_client import AsgiClient
from page_reading import Element, read

from fairhorizon.service.admin.set_up import create_limit, prepare
from fairhorizon.service.app import build_app
from fairhorizon.service.background import Service
from fairhorizon.service.settings import ServiceSettings
from fairhorizon.service.store.catalogue import Item, put_items
from fairhorizon.service.store.database import Database

LIMITS = "/dashboard/limits"
NASTY = '"><img src=x onerror=alert(1)>'


@pytest.fixture
def client(database: Database) -> AsgiClient:
    """Items of two sellers, and one limit."""
    prepare(database)
    with database.writing() as connection:
        some = [Item("a", labels={"seller": "x"}), Item("b", labels={"seller": "y"})]
        put_items(database, connection, some)
    create_limit(database, "seller=x<=0.4", ServiceSettings())
    return AsgiClient(build_app(Service(database, ServiceSettings())))


def page_of(client: AsgiClient) -> Element:
    return read(client.get(LIMITS).text)


def form_of(page: Element, path: str) -> dict[str, str]:
    return page.one("form", action=path).fields()


def in_force(client: AsgiClient) -> list[tuple[object, ...]]:
    names = ("Id", "Limit", "Window", "Counts", "Slack")
    return [tuple(one[name] for name in names) for one in client.get("/v1/limits").json()]


def test_a_limit_is_created(client: AsgiClient) -> None:
    form = form_of(page_of(client), LIMITS)
    assert (form["window"], form["slack"]) == ("always", "200")
    typed = {"limit": " seller=y >= 0.25 ", "window": "day", "slack": "50", "counts": "confirmed"}
    answer = client.post(LIMITS, data=form | typed)
    assert (answer.status_code, answer.headers["Location"]) == (303, f"{LIMITS}?done=created")
    assert in_force(client) == [
        (1, "seller=x<=0.4", "always", "served", 200),
        (2, "seller=y>=0.25", "day", "confirmed", 50),
    ]
    said = read(client.get(answer.headers["Location"]).text).one("p", class_="done")
    assert said.text == "The limit is kept from now on."


@pytest.mark.parametrize(
    ("chosen", "limit"),
    [
        ({"column": "popular", "share": "0.4"}, "popular<=0.4"),
        ({"column": "seller", "value": "y", "share": "0.25"}, "seller=y<=0.25"),
        ({"column": "seller", "value": "A & B", "share": ".1"}, '"seller=A & B"<=0.1'),
        ({"column": "seller", "share": "0.5"}, "seller:each<=0.5"),
        ({"column": "seller", "value": "x", "bound": "at least", "share": "0.2"}, "seller=x>=0.2"),
    ],
)
def test_a_limit_is_made_by_choosing(
    client: AsgiClient, database: Database, chosen: dict[str, str], limit: str
) -> None:
    with database.writing() as connection:
        put_items(database, connection, [Item("c", labels={"seller": "A & B", "popular": "no"})])
    engine = client.app.state.service.engine
    engine.prepare()
    page = page_of(client)
    form = page.one("form", action=LIMITS)
    columns = [one.text for one in form.one("select", name="column").every("option")]
    assert columns == ["popular", "seller"]  # a column cannot be called by a reserved word
    values = [one.attributes["value"] for one in form.one("datalist").every("option")]
    assert values == ["A & B", "x", "y"]
    answer = client.post(LIMITS, data=form.fields() | chosen)
    assert answer.status_code == 303, answer.text
    assert in_force(client)[-1][1] == limit
    engine.replica.leave()


def test_a_choice_without_a_share_stays_in_the_form(client: AsgiClient) -> None:
    form = form_of(page_of(client), LIMITS) | {"column": "popular", "share": "half"}
    answer = client.post(LIMITS, data=form)
    assert answer.status_code == 422
    page = read(answer.text)
    assert "give a number from 0 to 1" in page.one("p", class_="wrong").text
    assert form_of(page, LIMITS)["share"] == "half"


def test_a_limit_is_changed_and_counts_anew(client: AsgiClient) -> None:
    path = f"{LIMITS}/1/change"
    form = form_of(page_of(client), path)
    assert {name: form[name] for name in ("share", "window", "slack")} == {
        "share": "0.4",
        "window": "always",
        "slack": "200",
    }
    answer = client.post(path, data=form | {"share": "0.35", "window": "500 showings"})
    assert (answer.status_code, answer.headers["Location"]) == (303, f"{LIMITS}?done=changed")
    assert in_force(client) == [(2, "seller=x<=0.35", "500 showings", "served", 200)]
    ended = client.get("/v1/limits/1").json()
    assert ended["EndedAt"] is not None


def test_a_limit_is_ended(client: AsgiClient) -> None:
    path = f"{LIMITS}/1/end"
    answer = client.post(path, data=form_of(page_of(client), path))
    assert (answer.status_code, answer.headers["Location"]) == (303, f"{LIMITS}?done=ended")
    assert in_force(client) == []
    assert "No limit is in force." in page_of(client).text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ({"limit": "seller=x"}, "<= or >= is missing"),
        ({"limit": "nothing<=0.4"}, "is no group"),
        ({"limit": NASTY}, "this quote is not closed"),
        ({"limit": "seller=z<=0.4"}, "z"),
        ({"limit": "gini<=0.4"}, "give a group"),
        ({"limit": "seller=x<=0.4"}, "is in force already"),
        ({"limit": "seller=y<=0.4", "window": NASTY}, "give always, day or 10000 showings"),
        ({"limit": "seller=y<=0.4", "slack": "0"}, "whole number of showings"),
        ({"limit": "seller=y<=0.4", "slack": "1e3"}, "whole number of showings"),
        ({"limit": "seller=y<=0.4", "slack": "9" * 10}, "whole number of showings"),
        ({"limit": "x" * 1001}, "more than 1000 characters"),
        ({"limit": ""}, "no column is chosen"),
    ],
)
def test_what_is_wrong_is_said_beside_what_was_typed(
    client: AsgiClient, typed: dict[str, str], said: str
) -> None:
    form = form_of(page_of(client), LIMITS) | {"window": "day", "slack": "70"} | typed
    answer = client.post(LIMITS, data=form | {"counts": "confirmed"})
    assert answer.status_code == 422
    page = read(answer.text)
    again = page.one("form", action=LIMITS)
    assert said in again.one("p", role="alert").text
    assert again.fields() == form
    chosen = [one.text for one in again.every("option") if "selected" in one.attributes]
    assert chosen == ["confirmed"]
    assert page.every("img") == []
    assert len(in_force(client)) == 1
    # nothing is loaded over it while it is mended
    assert "data-refresh" not in page.one("main").attributes


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ({"share": "1.2"}, "a number from 0 to 1"),
        ({"share": "nan"}, "a number from 0 to 1"),
        ({"share": NASTY}, "a number from 0 to 1"),
        ({"window": "week"}, "give always, day or 10000 showings"),
        ({"slack": "-1"}, "whole number of showings"),
    ],
)
def test_a_change_that_is_wrong_leaves_the_limit(
    client: AsgiClient, typed: dict[str, str], said: str
) -> None:
    path = f"{LIMITS}/1/change"
    form = form_of(page_of(client), path) | typed
    answer = client.post(path, data=form)
    assert answer.status_code == 422
    card = read(answer.text).one("section", id="limit-1")
    again = card.one("form", action=path)
    assert said in again.one("p", role="alert").text
    assert again.fields() == form
    assert "open" in card.every("details")[0].attributes
    assert in_force(client) == [(1, "seller=x<=0.4", "always", "served", 200)]


@pytest.mark.parametrize("action", ["change", "end"])
def test_a_limit_that_ended_in_between(client: AsgiClient, action: str) -> None:
    path = f"{LIMITS}/1/{action}"
    form = form_of(page_of(client), path)
    client.call("DELETE", "/v1/limits/1")
    answer = client.post(path, data=form | {"share": "0.2"})
    assert answer.status_code == 422
    assert "limit 1 is not in force any more" in read(answer.text).one("p", role="alert").text
    assert in_force(client) == []


def test_only_our_own_words_are_said(client: AsgiClient) -> None:
    page = read(client.get(f"{LIMITS}?done=hacked").text)
    assert page.every("p", class_="done") == []
