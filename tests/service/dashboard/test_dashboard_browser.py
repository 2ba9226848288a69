"""The dashboard of a real server in a real browser."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Page,
    ViewportSize,
    expect,
    sync_playwright,
)

from fairhorizon.service import dashboard
from fairhorizon.service.admin.set_up import prepare
from fairhorizon.service.dashboard.charts import (
    WIDTH,
    Curve,
    LineChart,
    milliseconds,
    percent,
    plain,
)
from fairhorizon.service.dashboard.overview import NARROW
from fairhorizon.service.dashboard.pages import environment
from fairhorizon.service.monitoring.counts import Period
from fairhorizon.service.settings import Role
from fairhorizon.service.store import keys
from fairhorizon.service.store.database import Database
from local_postgres import free_port

CHROMIUM = shutil.which("chromium")
# in CI a missing browser is a failure: what is skipped there is never run
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        CHROMIUM is None and not os.environ.get("CI"), reason="no chromium on the PATH"
    ),
]
ARGUMENTS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
PLANTED = "<script>document.title = 'planted'</script>"
PLANTED_TITLE = '"><img src=x onerror="document.title = \'planted\'">'
PHONE = {"width": 390, "height": 844}
DESK = {"width": 1200, "height": 900}
WITHIN = 90  # seconds
REFRESH = 10_000  # milliseconds


@dataclass
class Server:
    """A service at work, and a key of each role."""

    url: str
    keys: dict[Role, str]

    def api(self) -> httpx.Client:
        headers = {"X-API-Key": self.keys[Role.ADMIN]}
        return httpx.Client(base_url=self.url, headers=headers, timeout=WITHIN)


@pytest.fixture(scope="module")
def server(shop_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    file, port = tmp_path_factory.mktemp("dashboard") / "service.db", free_port()
    database = Database(str(file))
    prepare(database)
    with database.writing() as connection:
        made = {role: keys.make(database, connection, role.value, role) for role in Role}
    database.close()
    command = [sys.executable, "-m", "fairhorizon", "serve", "--run", str(shop_run)]
    command += ["--database", str(file), "--port", str(port)]
    with (file.parent / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    serving = Server(f"http://127.0.0.1:{port}", made)
    try:
        with serving.api() as api:
            _wait_until_ready(api, process)
            _serve_some(api)
        yield serving
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(WITHIN)


def _wait_until_ready(api: httpx.Client, process: "subprocess.Popen[bytes]") -> None:
    until = time.monotonic() + WITHIN
    while time.monotonic() < until and process.poll() is None:
        try:
            if api.get("/api/health/ready").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    pytest.fail("the server does not start")


def _serve_some(api: httpx.Client) -> None:
    """Sixty lists, and one that shows an item that would like to be a script."""
    item = {"ItemId": PLANTED, "Labels": {"title": PLANTED_TITLE, "seller": PLANTED_TITLE}}
    assert api.post("/api/items", json=[item]).status_code == 200
    for number in range(60):
        assert api.get(f"/api/recommend/c{number % 40}").status_code == 200
    candidates = [{"Id": PLANTED, "Score": 1.0}]
    shown = api.post("/v1/rank", json={"UserId": PLANTED, "Candidates": candidates})
    assert [one["Id"] for one in shown.json()] == [PLANTED]
    limit = 'seller="' + PLANTED_TITLE.replace('"', '""') + '"<=0.9'
    assert api.post("/v1/limits", json={"Limit": limit}).status_code == 201
    until = time.monotonic() + WITHIN
    while api.get("/v1/exposure").json()["Showings"] < 601:  # until they are counted
        assert time.monotonic() < until
        time.sleep(0.1)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        yield found
        found.close()


@dataclass
class Visit:
    """A page, and what it complains about."""

    page: Page
    server: Server
    complaints: list[str] = field(default_factory=list)

    def complain(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def sign_in(self, role: Role = Role.ADMIN) -> None:
        self.page.goto(self.server.url)
        self.page.get_by_label("Key").fill(self.server.keys[role])
        self.page.get_by_role("button", name="Sign in").click()
        expect(self.page.get_by_role("navigation", name="Pages")).to_be_visible()

    def go(self, path: str) -> None:
        self.page.goto(self.server.url + path)

    @property
    def overflow(self) -> int:
        """By how many pixels the page is wider than its window."""
        found = self.page.evaluate("document.documentElement.scrollWidth - innerWidth")
        return int(found)


@pytest.fixture
def visit(browser: Browser, server: Server, request: pytest.FixtureRequest) -> Iterator[Visit]:
    """Somebody who has not signed in; marked tests look from a phone, or in the dark."""
    context = browser.new_context(**{"viewport": DESK, **getattr(request, "param", {})})
    made = Visit(context.new_page(), server)
    made.page.on("console", made.complain)
    made.page.on("pageerror", lambda error: made.complaints.append(str(error)))
    yield made
    context.close()
    assert made.complaints == []


def test_signing_in_and_out(visit: Visit) -> None:
    visit.sign_in()
    expect(visit.page.get_by_text("admin (admin)")).to_be_visible()
    (cookie,) = (one for one in visit.page.context.cookies() if one["name"].endswith("session"))
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Strict", "/")
    visit.page.get_by_role("button", name="Sign out").click()
    expect(visit.page.get_by_role("heading", name="Sign in")).to_be_visible()
    visit.go("/dashboard/limits")
    expect(visit.page.get_by_role("heading", name="Sign in")).to_be_visible()


def test_a_wrong_key_is_refused(visit: Visit) -> None:
    visit.go("/")
    visit.page.get_by_label("Key").fill("fh_000000000000_wrong")
    visit.page.get_by_role("button", name="Sign in").click()
    expect(visit.page.get_by_role("alert")).to_have_text("This key is not known, or has ended.")
    assert visit.page.get_by_role("navigation").count() == 0
    # what browsers themselves say about an answer of status 401
    visit.complaints = [one for one in visit.complaints if "401" not in one]


SEEN = """() => [...document.querySelectorAll("figure.chart:has(> svg)")].map(chart => {
  const drawing = chart.querySelector("svg");
  const box = drawing.viewBox.baseVal;
  const points = [...drawing.querySelectorAll("polyline")].map(line =>
    [...line.points].map(({x, y}) => [x, y]));
  const texts = [...drawing.querySelectorAll("text")].map(one => one.getBBox());
  return {
    name: chart.querySelector("figcaption").textContent,
    title: drawing.querySelector("title").textContent,
    width: box.width, height: box.height,
    points,
    outside: texts.filter(one => one.x < 0 || one.y < 0
      || one.x + one.width > box.width || one.y + one.height > box.height).length,
    lines: drawing.querySelectorAll("line.limit").length,
    drawn: drawing.getBoundingClientRect().width,
    numbers: chart.querySelectorAll("tbody tr").length,
  };
})"""


def test_charts_are_drawn_inside_their_frames(visit: Visit) -> None:
    visit.sign_in()
    charts = {one["name"]: one for one in visit.page.evaluate(SEEN)}
    assert "popular: share of showings" in charts
    assert "Lists a second" in charts
    for one in charts.values():
        assert one["title"] == one["name"]
        assert one["drawn"] > 250
        assert one["outside"] == 0
        assert one["points"]
        assert one["numbers"] > 0
        for points in one["points"]:
            assert len(points) >= 2
            assert all(0 <= x <= one["width"] and 0 <= y <= one["height"] for x, y in points)
        assert one["lines"] == ("share" in one["name"])
    shares = charts["popular: share of showings"]
    assert all(y > 12 for points in shares["points"] for _, y in points)  # kept below its line


@pytest.mark.parametrize("window", [DESK, PHONE])
def test_texts_of_charts_are_inside_at_any_time_and_for_any_values(
    browser: Browser, window: ViewportSize
) -> None:
    """However long the numbers are, and wherever the first and the last hour fall."""
    drawn = []
    for write in (plain, percent, milliseconds):
        for power in range(-6, 7):
            begin = 1.7e9 + 977 * (power + 6)  # another time of day each
            period = Period(begin, begin + 4 * 3600, 3600)
            points = [(begin, 1.1 * 10.0**power), (begin + 3600, 0.3 * 10.0**power)]
            curve = Curve("c", points, "#000")
            name = f"{write.__name__} {power}"
            drawn += [LineChart(name, (curve,), period, write, width=w) for w in (NARROW, WIDTH)]
    macro = environment().get_template("parts.html.j2").module.chart  # type: ignore[attr-defined]
    style = files(dashboard).joinpath("style", "style.css").read_text(encoding="utf-8")
    page = browser.new_page(viewport=window)
    page.set_content(f"<style>{style}</style>" + "".join(map(macro, drawn)))
    charts = page.evaluate(SEEN)
    assert len(charts) == len(drawn)
    assert {one["name"]: one["outside"] for one in charts if one["outside"]} == {}
    page.close()


def test_a_limit_is_changed_through_the_form(visit: Visit) -> None:
    visit.sign_in()
    visit.page.get_by_role("link", name="Limits").click()
    new = visit.page.locator("section", has_text="New limit")
    new.get_by_label("column").select_option("kind")
    new.get_by_label("value").fill("k1")
    new.get_by_label("share").fill("0.25")
    new.get_by_role("button", name="Create").click()
    expect(visit.page.get_by_role("status").filter(has_text="kept from now on")).to_be_visible()
    card = visit.page.locator("section", has_text="kind=k1<=0.25")
    card.get_by_text("Change", exact=True).first.click()
    card.get_by_label("share").fill("7")
    card.get_by_role("button", name="Change").click()
    card = visit.page.locator("section", has_text="kind=k1<=0.25")
    expect(card.get_by_role("alert")).to_contain_text("a number from 0 to 1")
    expect(card.get_by_label("share")).to_have_value("7")
    card.get_by_label("share").fill("0.2")
    card.get_by_label("window").fill("day")
    card.get_by_role("button", name="Change").click()
    expect(visit.page.get_by_text("it counts anew", exact=False).first).to_be_visible()
    with visit.server.api() as api:
        limits = {one["Limit"]: one["Window"] for one in api.get("/v1/limits").json()}
    assert limits["kind=k1<=0.2"] == "day"
    assert "kind=k1<=0.25" not in limits
    card = visit.page.locator("section", has_text="kind=k1<=0.2")
    card.get_by_text("End", exact=True).click()
    card.get_by_role("button", name="End this limit").click()
    expect(visit.page.get_by_text("The limit has ended.")).to_be_visible()
    with visit.server.api() as api:
        assert "kind=k1<=0.2" not in [one["Limit"] for one in api.get("/v1/limits").json()]
    # what browsers themselves say about an answer of status 422
    visit.complaints = [one for one in visit.complaints if "422" not in one]


def test_the_page_of_the_api_shows_its_routes_and_asks_no_other_host(visit: Visit) -> None:
    asked: list[str] = []
    visit.page.on("request", lambda request: asked.append(request.url))
    visit.go("/docs")
    route = visit.page.locator("#get--api-recommend--user-")
    expect(route.get_by_text("/api/recommend/{user}", exact=True)).to_be_visible()
    expect(route.get_by_text("The id of the user")).to_be_hidden()
    route.locator("summary").click()
    expect(route.get_by_text("The id of the user")).to_be_visible()
    assert len(asked) >= 3
    assert [one for one in asked if not one.startswith(visit.server.url)] == []
    assert visit.overflow == 0


def test_a_reader_has_no_forms_to_change_anything(visit: Visit) -> None:
    visit.sign_in(Role.READ)
    visit.page.get_by_role("link", name="Limits").click()
    expect(visit.page.get_by_text("A key of role admin may change limits.")).to_be_visible()
    assert visit.page.locator("main form").count() == 0


PATHS = ("/", "/?period=7d", "/dashboard/limits", "/dashboard/item/a1", "/dashboard/user/c1")


@pytest.mark.parametrize("visit", [{"viewport": PHONE}, {}], indirect=True, ids=["phone", "desk"])
def test_no_page_is_wider_than_its_window(visit: Visit) -> None:
    visit.go("/")
    assert visit.overflow <= 0
    visit.sign_in()
    for path in PATHS:
        visit.go(path)
        assert visit.overflow <= 0, path
    for summary in visit.page.locator("main summary").all():
        summary.click()
    assert visit.overflow <= 0


@pytest.mark.parametrize("visit", [{"viewport": PHONE}], indirect=True)
def test_one_column_on_a_phone(visit: Visit) -> None:
    visit.sign_in()
    places = visit.page.evaluate(
        "[...document.querySelectorAll('figure.chart')].map(one => one.getBoundingClientRect().x)"
    )
    assert len(places) > 3
    assert len(set(places)) == 1


def _ground(browser: Browser, server: Server, scheme: str) -> tuple[str, str]:
    context = browser.new_context(color_scheme=scheme)
    page = context.new_page()
    page.goto(server.url)
    found = page.evaluate(
        "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
    )
    context.close()
    return found[0], found[1]


def test_light_and_dark(browser: Browser, server: Server) -> None:
    assert _ground(browser, server, "light") == ("rgb(246, 247, 249)", "rgb(28, 32, 36)")
    assert _ground(browser, server, "dark") == ("rgb(17, 20, 24)", "rgb(232, 234, 237)")


def test_planted_scripts_do_not_run(visit: Visit) -> None:
    visit.sign_in()
    visit.page.get_by_label("Item or user id").fill(PLANTED)
    visit.page.get_by_role("button", name="Find").click()
    visit.page.get_by_role("link", name=f"the item {PLANTED}").click()
    expect(visit.page.get_by_role("heading", level=1)).to_have_text(PLANTED_TITLE)
    expect(visit.page.get_by_role("heading", name="showings in the last 7 days")).to_be_visible()
    visit.page.get_by_role("link", name=PLANTED).first.click()
    expect(visit.page.get_by_role("heading", level=1)).to_have_text(PLANTED)
    expect(visit.page.get_by_role("link", name=PLANTED_TITLE).first).to_be_visible()
    for path in ("/", "/dashboard/limits"):
        visit.go(path)
        expect(
            visit.page.get_by_role("heading", level=2).filter(has_text="onerror")
        ).to_be_visible()
        assert visit.page.title() != "planted"
        assert visit.page.locator("img").count() == 0
        assert visit.page.locator("script").count() == 1


def test_scripts_in_a_page_would_be_refused(visit: Visit) -> None:
    """The policy holds even if something were not escaped."""
    visit.sign_in()
    visit.page.evaluate(
        """() => {
          const script = document.createElement("script");
          script.textContent = "document.title = 'planted'";
          document.body.append(script);
          document.body.insertAdjacentHTML("beforeend", "<p id=styled style='color:red'>x</p>");
        }"""
    )
    assert visit.page.title() != "planted"
    colour = visit.page.evaluate("getComputedStyle(document.getElementById('styled')).color")
    assert colour != "rgb(255, 0, 0)"
    refused = [one for one in visit.complaints if "Content Security Policy" in one]
    assert len(refused) == 2
    visit.complaints = [one for one in visit.complaints if one not in refused]


def test_it_refreshes_itself_but_not_while_somebody_types(visit: Visit) -> None:
    page = visit.page
    page.clock.install()
    visit.sign_in()
    tile = page.locator(".tiles div", has_text="showings in all").locator("dd")
    search = page.get_by_label("Item or user id")
    page.get_by_text("Numbers", exact=True).first.click()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    before = int(tile.inner_text().replace(",", ""))
    with visit.server.api() as api:
        shown = len(api.get("/api/recommend/c1").json())
        page.clock.fast_forward(REFRESH)
        expect(tile).to_have_text(f"{before + shown:,}")
        assert asked == [f"{visit.server.url}/"]
        assert page.locator("details[open]").count() == 1  # what was open stays open
        search.fill("half an id")
        shown += len(api.get("/api/recommend/c1").json())
        page.clock.fast_forward(REFRESH)
        search.evaluate("field => field.blur()")  # what is half typed is not finished
        page.clock.fast_forward(REFRESH)
        assert asked == [f"{visit.server.url}/"]
        search.fill("")
        search.evaluate("field => field.blur()")
        page.clock.fast_forward(REFRESH)
        expect(tile).to_have_text(f"{before + shown:,}")


def test_it_says_so_when_the_service_does_not_answer(visit: Visit) -> None:
    page = visit.page
    page.clock.install()
    visit.sign_in()
    old = page.get_by_text("These numbers are old.")
    expect(old).to_be_hidden()
    page.context.set_offline(True)
    page.clock.fast_forward(REFRESH)
    expect(old).to_be_visible()
    page.context.set_offline(False)
    page.clock.fast_forward(REFRESH)
    expect(old).to_be_hidden()
    visit.complaints = [one for one in visit.complaints if "INTERNET_DISCONNECTED" not in one]
