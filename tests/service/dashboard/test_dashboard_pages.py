"""What pages say, of a history that was worked out by hand and of a shop that is served."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from asgi_client import AsgiClient
from asking import ask
from page_reading import Element, read
from recorded_lists import Shown, fill, record

from fairhorizon.service.admin import jobs
from fairhorizon.service.admin.set_up import create_limit, prepare, set_up
from fairhorizon.service.app import build_app
from fairhorizon.service.background import Service
from fairhorizon.service.budget.impressions import record_feedback
from fairhorizon.service.monitoring.alerts import begin_alert, end_alert
from fairhorizon.service.monitoring.counts import roll_up
from fairhorizon.service.settings import Role, ServiceSettings
from fairhorizon.service.store import keys
from fairhorizon.service.store.catalogue import Item, User, put_items, put_users
from fairhorizon.service.store.database import Database
from fairhorizon.service.store.feedback import Event
from fairhorizon.service.store.schema import accounts, windows
from fairhorizon.service.store.state import promote_model, register_model

pytestmark = pytest.mark.slow

HOUR = 3600
NASTY = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' OR 1=1 --",
    "a/b?c=d&e#f%2F",
    "{{ 7 * 7 }}",
)


def client_of(database: Database) -> AsgiClient:
    return AsgiClient(build_app(Service(database, ServiceSettings())))


def page_of(client: AsgiClient, path: str, status: int = 200) -> Element:
    answer = client.get(path)
    assert answer.status_code == status, answer.text
    page = read(answer.text)
    check_harmless(page)
    return page


def check_harmless(page: Element) -> None:
    """Nothing is in it but what the templates have."""
    assert [one.attributes["src"][:18] for one in page.every("script")] == ["/dashboard/page.js"]
    assert page.every("img") == []

    def names(element: Element) -> Iterator[str]:
        yield from element.attributes
        for one in element.inside:
            if isinstance(one, Element):
                yield from names(one)

    assert not [name for name in names(page) if name.startswith("on") or name == "style"]


@pytest.fixture
def client(database: Database) -> AsgiClient:
    """The history begins three full hours ago."""
    fill(database, HOUR * (int(time.time()) // HOUR - 3))
    return client_of(database)


def test_limits_in_words_and_numbers(client: AsgiClient) -> None:
    page = page_of(client, "/?period=24h")
    # popular has 2 of 8; of seller:each the present window has 1 and 0 of 2
    popular, sellers = page.every("section", class_="limit-card")
    assert popular.one("h2").text == "popular<=0.4 kept"
    # a is not popular any more, and b, which is now, has 2 of 8, too
    assert popular.every("dl")[0].facts() == {
        "share in the window": "25.00 %",
        "at most": "40.00 %",
        "showings of the group": "2",
        "price": "0.3",
        "share in 24 hours": "25.00 %",
        "by the labels of now": "25.00 %",
    }
    assert "Promised. Window always" in popular.every("p")[0].text
    assert "8 showings. Slack 200." in popular.every("p")[0].text
    assert sellers.one("h2").text == "seller:each<=0.5 near"
    assert sellers.every("table")[0].rows() == [
        ["seller=x", "near", "50.00 %", "50.00 %", "1", "0.3"],
        ["seller=y", "kept", "0.00 %", "50.00 %", "0", "0.3"],
    ]
    assert page.one("h1").text == "All 2 limits are kept."


def test_of_many_groups_the_nearest_are_shown_and_the_others_folded(database: Database) -> None:
    prepare(database)
    with database.writing() as connection:
        some = [Item(f"i{n}", labels={"seller": f"s{n}"}) for n in range(12)]
        put_items(database, connection, some)
    create_limit(database, "seller:each<=0.5", ServiceSettings())
    service = Service(database, ServiceSettings())
    service.engine.prepare()
    with database.writing() as connection:
        connection.execute(windows.update().values(shown=1000))
        for n in range(12):  # s11 is nearest to its line
            account = accounts.update().where(accounts.c.group == f"seller=s{n}")
            connection.execute(account.values(used=40 * n))
    card = page_of(AsgiClient(build_app(service)), "/").one("section", class_="limit-card")
    table, folded = card.every("table")
    assert [row[0] for row in table.rows()] == [f"seller=s{n}" for n in (11, 10, 9, 8, 7)]
    fold = next(one for one in card.every("details") if one.one("summary").text == "More groups")
    assert fold.every("table")[-1] is folded
    assert [row[0] for row in folded.rows()] == [f"seller=s{n}" for n in range(6, -1, -1)]
    assert "The 5 groups nearest to their line, of 12." in card.text
    service.engine.replica.leave()


def test_models_and_forms_to_change_what_is_served(database: Database, shop_run: Path) -> None:
    set_up(database, ServiceSettings(), run=shop_run)
    client = client_of(database)
    page = page_of(client, "/dashboard/models")
    assert page.one("section", class_="model").one("h2").text == "1: ease+lists@0.3 served"
    assert [form.attributes["action"] for form in page.one("main").every("form")] == [
        "/dashboard/models"  # there is nothing to go back to, and the one there is is served
    ]
    form = page.one("form", action="/dashboard/models").fields()
    answer = client.post("/dashboard/models", data=form | {"folder": "/nowhere"})
    assert answer.headers["Location"] == "/dashboard/models?done=registered"
    with database.writing() as connection:
        second = register_model(database, connection, "runs/next", "fcpo")
    page = page_of(client, "/dashboard/models?done=registered")
    assert "register: waiting" in page.every("ul")[-1].text
    promote = f"/dashboard/models/{second}/promote"
    assert client.post(promote, data=page.one("form", action=promote).fields()).status_code == 303
    with database.writing() as connection:
        promote_model(database, connection, second)
    page = page_of(client, "/dashboard/models")
    back = page.one("form", action="/dashboard/models/rollback")
    assert "Model 1 (ease+lists@0.3) was served before" in back.text
    assert client.post("/dashboard/models/rollback", data=back.fields()).status_code == 303
    asked = [(one["Kind"], one["State"]) for one in client.get("/v1/jobs").json()]
    assert asked == [("promote", "waiting"), ("promote", "waiting"), ("register", "waiting")]
    assert client.post("/dashboard/models/rollback", data={}).status_code == 403  # no token


def test_charts_of_a_limit(client: AsgiClient) -> None:
    page = page_of(client, "/?period=24h")
    popular = page.every("section", class_="limit-card")[0]
    share, price = popular.every("figure")
    assert share.one("figcaption").text == "popular: share of showings"
    # quarters of an hour with lists: 2 of 4, then 0 of 2, then 0 of 2
    numbers = [row[1:] for row in share.one("tbody").rows()]
    assert numbers == [["0 %", "25 %"], ["0 %", "33.3 %"], ["50 %", "50 %"]]
    assert [row[1:] for row in price.one("tbody").rows()] == [["0.1"]]
    drawing = share.every("svg")[0]
    assert drawing.one("title").text == drawing.attributes["aria-label"]
    # three steps far from each other, twice
    assert len(drawing.every("polyline")) == 6
    line = drawing.one("line", class_="limit")
    # 40 % of an axis up to 50 %
    assert line.attributes["y1"] == str(round(166 - 0.8 * 154, 1))
    assert line.attributes["stroke-dasharray"]


def test_traffic_and_who_gains(client: AsgiClient) -> None:
    page = page_of(client, "/?period=24h")
    tiles = page.one("dl", class_="tiles").facts()
    assert tiles == {
        "lists a second": "0",
        "median": "3 ms",
        "mean": "4 ms",
        "99 % within": "8.85 ms",
        "slowest": "9 ms",
        "showings in all": "8",
    }
    assert "of the last 4 lists" in page.one("main").text
    assert "There is nothing to compare yet" in page.one("main").text
    database: Database = client.app.state.service.database
    record(database, [Shown(time.time() - 30 * HOUR, ["e", "e"], [[], []], [])])
    roll_up(database)
    page = page_of(client_of(database), "/?period=24h")
    gain, lose = (one for one in page.every("table") if one.every("th")[0].text in ("Gain", "Lose"))
    # a 3, b 2, c 2, d 1 of 8; before, e alone
    assert gain.rows()[0] == ["a", "0.00 %", "37.50 %", "+37.50"]
    assert lose.rows() == [["e", "100.00 %", "0.00 %", "-100.00"]]


def test_alerts_replicas_and_jobs(client: AsgiClient) -> None:
    database: Database = client.app.state.service.database
    with database.writing() as connection:
        begin_alert(connection, "floor-missed", "seller=x>=0.2", "x has 1 %", 1_700_000_000)
        begin_alert(connection, "limit-near", "popular<=0.4", "gone", 1_700_000_000)
        end_alert(connection, 2, 1_700_000_100)
        jobs.ask(database, connection, "relabel", "once", {})
    page = page_of(client, "/")
    assert page.one("h1").text == "All 2 limits are kept. 1 alert active."
    assert page.one("section", class_="alerts").text == (
        "floor-missed seller=x>=0.2: x has 1 % since 2023-11-14 22:13:20"
    )
    facts = page.every("dl", class_="facts")[-1].facts()
    assert (facts["model"], facts["labels"], facts["replicas"]) == ("none", "epoch 2", "none")
    assert facts["jobs"] == "relabel: waiting, 0 %"
    assert "2023-11-14 22:13:20 to 2023-11-14 22:15:00: limit-near" in page.text


def test_a_missed_limit_is_said_first(database: Database) -> None:
    prepare(database)
    with database.writing() as connection:
        put_items(database, connection, [Item("a", labels={"seller": "x"})])
    client = client_of(database)
    assert page_of(client, "/").one("h1").text == "No limit is in force."
    create_limit(database, "seller=x>=0.5", ServiceSettings())
    page = page_of(client, "/")
    assert page.one("h1").text == "The limit is kept."
    assert page.one("section", class_="limit-card").one("h2").text.endswith("nothing shown yet")


def test_an_unknown_period_is_refused(client: AsgiClient) -> None:
    page_of(client, "/?period=1y", 422)


def test_an_item(client: AsgiClient) -> None:
    database: Database = client.app.state.service.database
    record_feedback(database, [Event("click", "v", "c", time=1_700_000_000.0)], read=("read",))
    page = page_of(client, "/dashboard/item/c")
    facts = page.every("dl")[0].facts()
    assert facts["id"] == "c"
    assert (facts["seller"], facts["popular"], facts["state"]) == ("x, y", "no", "may be shown")
    assert "2 showings in the last 7 days" in page.text
    events, found = page.every("table")[-2:]
    assert events.rows() == [["2023-11-14 22:13:20", "click", "v"]]
    assert [row[1:] for row in found.rows()] == [["2", "v"], ["2", "u"]]
    assert "Looked at the last 4 lists, back to" in page.text
    assert page_of(client, "/dashboard/item/b").every("dl")[0].facts()["popular"] == "yes"
    hidden = page_of(client, "/dashboard/item/f").every("dl")[0].facts()
    assert hidden["state"] == "hidden"


def test_a_user_without_a_model(client: AsgiClient) -> None:
    database: Database = client.app.state.service.database
    with database.writing() as connection:
        put_users(database, connection, [User("v", {"town": "Ulm"}, "a comment")])
    page = page_of(client, "/dashboard/user/v")
    assert page.every("dl")[0].facts() == {"town": "Ulm", "comment": "a comment"}
    (shown,) = (one for one in page.every("table") if len(one.rows()[0]) > 5)
    assert shown.rows() == [
        ["1", "b", "0.5", "0.5", "", "seller=y", ""],
        ["2", "c", "0.5", "0.5", "", "seller=x, seller=y", ""],
    ]
    assert "Not in it: served by feedback alone." in page.text


@pytest.mark.parametrize("path", ["/dashboard/item/nobody", "/dashboard/user/nobody"])
def test_what_is_not_there(client: AsgiClient, path: str) -> None:
    page = page_of(client, path, 404)
    assert "Look for another id." in page.text


def test_the_search(client: AsgiClient) -> None:
    database: Database = client.app.state.service.database
    with database.writing() as connection:
        put_users(database, connection, [User("a"), User("only a user")])
    for name, place in (
        ("b", "/dashboard/item/b"),
        ("only a user", "/dashboard/user/only%20a%20user"),
    ):
        answer = client.get("/dashboard/find", params={"id": name})
        assert (answer.status_code, answer.headers["Location"]) == (303, place)
    both = page_of(client, "/dashboard/find?id=a")
    assert [one.attributes["href"] for one in both.one("section").every("a")] == [
        "/dashboard/item/a",
        "/dashboard/user/a",
    ]
    page_of(client, "/dashboard/find?id=nobody", 404)
    page_of(client, "/dashboard/find?id=", 422)
    page_of(client, "/dashboard/find?id=%00", 422)


@pytest.mark.parametrize("text", NASTY)
def test_nothing_that_is_stored_becomes_part_of_a_page(database: Database, text: str) -> None:
    prepare(database)
    now = time.time()
    with database.writing() as connection:
        described = Item(text, False, (text,), {"title": f"title {text}", text: [text]}, 0.0, text)
        put_items(database, connection, [described])
        put_users(database, connection, [User(text, {text: text}, text)])
        begin_alert(connection, "limit-near", text, text, now)
        jobs.ask(database, connection, "relabel", text, {})
        jobs.report(connection, 1, 0.5, text)
    record_feedback(database, [Event(text[:60], text, text)], read=("read",))
    limit = '"' + text.replace('"', '""') + '"'
    create_limit(database, f"title={chr(34)}title {limit[1:]}<=0.5", ServiceSettings())
    record(database, [Shown(now - 5, [text], [[]], [], text)])
    roll_up(database)
    client = client_of(database)
    item = client.get("/dashboard/find", params={"id": text})
    assert item.status_code == 200  # an item and a user have it
    check_harmless(read(item.text))
    links = [str(one.attributes["href"]) for one in read(item.text).one("section").every("a")]
    assert len(links) == 2
    page = page_of(client, links[0])
    assert page.one("h1").text == f"title {text}"
    assert page.every("dl")[0].facts()["id"] == text
    assert page_of(client, links[1]).one("h1").text == text
    overview = page_of(client, "/")
    assert f"{text}: {text}" in overview.one("section", class_="alerts").text
    assert f"title {text}" in overview.one("section", class_="limit-card").one("h2").text.replace(
        '""', '"'
    )
    page_of(client, "/dashboard/limits")
    page_of(client, f"/dashboard/find?id={links[0].rpartition('/')[2]}x", 404)


def test_a_name_of_a_key_is_harmless(database: Database) -> None:
    prepare(database)
    with database.writing() as connection:
        key = keys.make(database, connection, NASTY[0], Role.READ)
    client = client_of(database)
    form = read(client.get(f"/login?next=/{NASTY[1]}").text).one("form", action="/login").fields()
    assert form["next"] == f"/{NASTY[1]}"
    client.post("/login", data=form | {"key": key})
    assert NASTY[0] in page_of(client, "/").one("form", action="/logout").text


@pytest.fixture
def shop(database: Database, shop_run: Path) -> Iterator[tuple[AsgiClient, Service]]:
    """The shop at work, without its server."""
    settings = ServiceSettings(explore=1.0)
    set_up(database, settings, run=shop_run, asked=["popular<=0.3", "seller=small>=0.6"])
    service = Service(database, settings)
    service.engine.prepare()
    service.engine.start()
    yield AsgiClient(build_app(service)), service
    service.engine.stop()


def test_why_somebody_is_shown_what_they_are_shown(shop: tuple[AsgiClient, Service]) -> None:
    client, service = shop
    for number in range(30):
        ask(service.engine, f"c{number % 10}", 6)
    made = ask(service.engine, "c3", 6)
    page = page_of(client, "/dashboard/user/c3")
    table = page.one("main").every("table")[0]
    headings = [one.text for one in table.every("th")]
    assert headings == [
        *("place", "item", "score", "value", "by limits", "probability", "groups", "because of")
    ]
    rows = [dict(zip(headings, row, strict=True)) for row in table.rows()]
    assert [row["item"] for row in rows] == made.items
    snapshot = service.engine.snapshot
    assert snapshot is not None
    assert snapshot.state is not None
    person = snapshot.state.users.find("c3")
    taken = {snapshot.catalogue.ids[code] for code in person.items.tolist()}
    for row, value, chance in zip(rows, made.values, made.propensities, strict=True):
        assert float(row["value"]) == pytest.approx(value, rel=0.01)
        assert float(row["probability"].removesuffix(" %")) == pytest.approx(100 * chance, rel=0.01)
        causes = [part.split()[0] for part in row["because of"].split(", ") if part]
        assert len(causes) <= 3
        assert set(causes) <= taken
        small = int(row["item"][1:]) % 3 == 0
        assert ("seller=small" in row["groups"]) is small
        # a floor adds its price to the value of a showing, a limit takes it
        price = made.prices.get("seller=small>=0.6", 0.0) * small
        price -= made.prices.get("popular<=0.3", 0.0) * ("popular" in row["groups"])
        assert float(row["by limits"] or 0) == pytest.approx(price, rel=0.01, abs=1e-12)
    assert any(row["by limits"].startswith("+") for row in rows)
    assert any(row["because of"] for row in rows)
    log = page.every("ol", class_="taken")[0]
    assert {one.text for one in log.every("a")} == taken


def in_group(service: Service, *, inside: bool) -> list[str]:
    """The items that are popular, or those that are not."""
    snapshot = service.engine.snapshot
    assert snapshot is not None
    members = snapshot.rules.members[0].tolist()
    return [
        one
        for one, popular in zip(snapshot.catalogue.ids, members, strict=True)
        if popular is inside
    ]


def test_the_groups_of_an_item(shop: tuple[AsgiClient, Service]) -> None:
    client, service = shop
    snapshot = service.engine.snapshot
    popular = [
        one
        for one in snapshot.catalogue.ids
        if snapshot.rules.members[0, snapshot.catalogue.codes[one]]
    ]
    facts = page_of(client, f"/dashboard/item/{popular[0]}").every("dl")[0].facts()
    assert facts["popular"] == "yes"
    assert facts["under limits"].startswith("popular<=0.3")
    assert ("seller=small>=0.6" in facts["under limits"]) is (int(popular[0][1:]) % 3 == 0)


def test_candidates_of_others_are_not_explained(shop: tuple[AsgiClient, Service]) -> None:
    client, service = shop
    first, second = in_group(service, inside=False)[:2]
    ask(service.engine, "c3", 2, candidates={first: 0.9, second: 0.8})
    page = page_of(client, "/dashboard/user/c3")
    assert "Scores of the caller" in page.text
    rows = page.every("table")[0].rows()
    assert [(row[2], row[-1]) for row in rows] == [("0.9", ""), ("0.8", "")]


def test_the_database_may_be_away(client: AsgiClient, tmp_path: Path) -> None:
    database: Database = client.app.state.service.database
    database.close()
    database.url = database.url.set(database=str(tmp_path))  # a folder is no database
    answer = client.get("/")
    assert answer.status_code == 503
    page = read(answer.text)
    assert page.one("h1").text.startswith("The database does not answer")
    assert "It is asked again at the next call." in page.text
