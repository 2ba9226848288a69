"""Who may look and who may change: keys, sessions, tokens and origins."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from asgi_client import AsgiClient
from page_reading import read

from fairhorizon import __version__
from fairhorizon.service.admin.set_up import prepare
from fairhorizon.service.api import auth
from fairhorizon.service.app import build_app
from fairhorizon.service.background import Service
from fairhorizon.service.dashboard.sessions import SESSION, VISIT, Signer
from fairhorizon.service.settings import Role, ServiceSettings
from fairhorizon.service.store import keys
from fairhorizon.service.store.database import Database
from fairhorizon.service.store.state import read_state

pytestmark = pytest.mark.slow

PAGES = ("/", "/dashboard/limits", "/dashboard/find?id=a", "/dashboard/item/a", "/dashboard/user/u")


def secret(database: Database) -> str:
    with database.reading() as connection:
        return read_state(database, connection).secret


def make_key(database: Database, role: Role) -> str:
    with database.writing() as connection:
        return keys.make(database, connection, f"the {role} key", role)


def visit(database: Database, base_url: str = "http://localhost", **settings: object) -> AsgiClient:
    service = Service(database, ServiceSettings.model_validate(settings))
    return AsgiClient(build_app(service), base_url)


@pytest.fixture
def prepared(tmp_path: Path) -> Iterator[Database]:
    """Without anything in it; who may do what does not depend on the kind of database."""
    database = Database(str(tmp_path / "service.db"))
    prepare(database)
    yield database
    database.close()


def sign_in(client: AsgiClient, key: str, following: str = "/"):
    form = read(client.get("/login").text).one("form", action="/login").fields()
    return client.post("/login", data=form | {"key": key, "next": following})


def token(client: AsgiClient) -> str:
    return (
        read(client.get("/dashboard/limits").text)
        .every("input", name="token")[0]
        .attributes["value"]
    )


def test_without_keys_everybody_on_this_machine_may_look(prepared: Database) -> None:
    client = visit(prepared)
    answer = client.get("/")
    assert answer.status_code == 200
    assert read(answer.text).every("form", action="/logout") == []
    assert client.get("/login").status_code == 303  # nothing to sign in for


def test_a_page_elsewhere_cannot_pretend_to_be_this_machine(prepared: Database) -> None:
    answer = visit(prepared, "http://rebound.example").get("/")
    assert answer.status_code == 401
    assert "answers to 127.0.0.1, localhost, ::1 only" in read(answer.text).one("h1").text


@pytest.mark.parametrize("path", PAGES)
def test_with_keys_one_has_to_sign_in(prepared: Database, path: str) -> None:
    make_key(prepared, Role.READ)
    answer = visit(prepared).get(path)
    assert answer.status_code == 303
    assert answer.headers["Location"].startswith("/login?next=%2F")


def test_signing_in_and_out(prepared: Database) -> None:
    client = visit(prepared)
    key = make_key(prepared, Role.ADMIN)
    answer = client.get("/dashboard/find?id=some%20id")
    login = client.get(answer.headers["Location"])
    form = read(login.text).one("form", action="/login").fields()
    assert form["next"] == "/dashboard/find?id=some%20id"
    answer = client.post("/login", data=form | {"key": key})
    assert (answer.status_code, answer.headers["Location"]) == (303, "/dashboard/find?id=some%20id")
    cookie = answer.headers["Set-Cookie"]
    for part in ("HttpOnly", "Max-Age=43200", "Path=/", "SameSite=strict"):
        assert part in cookie
    assert "Secure" not in cookie
    assert cookie.startswith(f"{SESSION}={key.split('_')[1]}.")
    assert key.split("_", 2)[2] not in cookie  # its secret part stays here
    page = read(client.get("/").text)
    leave = page.one("form", action="/logout")
    assert "the admin key (admin)" in leave.text
    answer = client.post("/logout", data=leave.fields())
    assert answer.status_code == 303
    assert SESSION not in client.cookies
    assert client.get("/").status_code == 303


def test_a_wrong_key_is_refused(prepared: Database) -> None:
    key = make_key(prepared, Role.READ)
    client = visit(prepared)
    for wrong in ("", "fh", key[:-1], key + "x", "fh_\x00_y", "' OR 1=1 --", "\u00e9"):
        answer = sign_in(client, wrong)
        assert answer.status_code == 401
        assert read(answer.text).one("p", id="error").text == "This key is not known, or has ended."
        assert SESSION not in client.cookies
        assert wrong == "" or wrong not in answer.text


def test_cookies_are_secure_where_the_connection_is(prepared: Database) -> None:
    key = make_key(prepared, Role.READ)
    client = visit(prepared, "https://localhost")
    form = read(client.get("/login").text).one("form", action="/login").fields()
    answer = client.post("/login", data=form | {"key": key})
    assert "Secure" in answer.headers["Set-Cookie"]
    behind = visit(prepared)
    answer = behind.get("/login", headers={"X-Forwarded-Proto": "https"})
    assert "Secure" in answer.headers["Set-Cookie"]


@pytest.mark.parametrize(
    "following",
    ["https://evil.example/", "//evil.example", "/\\evil.example", "javascript:alert(1)", "/\t/x"],
)
def test_signing_in_leads_to_our_own_pages_only(prepared: Database, following: str) -> None:
    key = make_key(prepared, Role.READ)
    answer = sign_in(visit(prepared), key, following)
    assert (answer.status_code, answer.headers["Location"]) == (303, "/")


def test_a_key_that_ended_ends_its_sessions(
    prepared: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auth, "REMEMBERED", 0.0)
    key, _ = make_key(prepared, Role.READ), make_key(prepared, Role.ADMIN)
    client = visit(prepared)
    sign_in(client, key)
    assert client.get("/").status_code == 200
    with prepared.writing() as connection:
        keys.end(prepared, connection, key.split("_")[1])
    assert client.get("/").status_code == 303


@pytest.mark.parametrize("change", ["forged", "old", "stranger"])
def test_sessions_of_others_are_refused(prepared: Database, change: str) -> None:
    key = make_key(prepared, Role.ADMIN)
    client, number = visit(prepared), key.split("_")[1]
    cookies = {
        "forged": Signer("00" * 32).session(number),
        "old": Signer(secret(prepared)).session(number, time.time() - 12 * 3600 - 1),
        "stranger": Signer(secret(prepared)).session("0" * 12),
    }
    assert client.get("/", headers={"Cookie": f"{SESSION}={cookies[change]}"}).status_code == 303
    good = Signer(secret(prepared)).session(number)
    fresh = visit(prepared)
    assert fresh.get("/", headers={"Cookie": f"{SESSION}={good}"}).status_code == 200


def test_a_reader_sees_and_may_not_change(prepared: Database) -> None:
    client = visit(prepared)
    sign_in(client, make_key(prepared, Role.READ))
    page = read(client.get("/dashboard/limits").text)
    assert page.every("form", action="/dashboard/limits") == []
    data = {"token": token(client), "limit": "popular<=0.4"}
    answer = client.post("/dashboard/limits", data=data)
    assert answer.status_code == 403
    assert "may look, but not change" in answer.text


FORMS = ("/dashboard/limits", "/dashboard/limits/1/change", "/dashboard/limits/1/end", "/logout")


@pytest.mark.parametrize("path", [*FORMS, "/login"])
@pytest.mark.parametrize("with_keys", [True, False])
def test_a_form_without_its_token_is_refused(
    prepared: Database, path: str, with_keys: bool
) -> None:
    client, other = visit(prepared), visit(prepared)
    if with_keys:
        key = make_key(prepared, Role.ADMIN)
        for one in (client, other):
            sign_in(one, key)
    theirs = token(other)
    assert token(client) != theirs
    data = {"limit": "popular<=0.4", "share": "0.3", "key": "x"}
    for wrong in ({}, {"token": ""}, {"token": theirs}, {"token": "0" * 64}):
        answer = client.post(path, data=data | wrong)
        assert answer.status_code == 403
        assert "does not belong to your session" in answer.text
    client.cookies.clear()
    if with_keys and path != "/login":
        assert client.post(path, data=data | {"token": theirs}).status_code == 303
    else:
        assert client.post(path, data=data | {"token": theirs}).status_code == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:81"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
        {"Origin": "http://localhost", "Sec-Fetch-Site": "cross-site"},
    ],
)
@pytest.mark.parametrize("path", [*FORMS, "/login"])
def test_a_form_of_another_site_is_refused(
    prepared: Database, path: str, headers: dict[str, str]
) -> None:
    client = visit(prepared)
    answer = client.post(path, data={"token": token(client)}, headers=headers)
    assert answer.status_code == 403
    assert "of another site" in answer.text


def test_our_own_forms_are_of_our_own_site(prepared: Database) -> None:
    client = visit(prepared)
    headers = {"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"}
    answer = client.post("/logout", data={"token": token(client)}, headers=headers)
    assert answer.status_code == 303


def test_attempts_to_sign_in_are_counted(prepared: Database) -> None:
    make_key(prepared, Role.ADMIN)
    client = visit(prepared, requests_per_second=3e-4)  # one, and the next after an hour
    assert client.get("/login").status_code == 200
    cookie = client.cookies.get(VISIT)
    data = {"token": Signer(secret(prepared)).token(cookie), "key": "fh_x_y"}
    answer = client.post("/login", data=data)
    assert answer.status_code == 429
    assert int(answer.headers["Retry-After"]) > 3000
    assert "requests a second" in read(answer.text).one("h1").text


def test_large_forms_are_refused(prepared: Database) -> None:
    client = visit(prepared)
    answer = client.post("/dashboard/limits", data={"token": token(client), "limit": "x" * 200_000})
    assert answer.status_code == 413


@pytest.mark.parametrize("path", [*PAGES, "/login"])
def test_browsers_are_told_to_be_careful(prepared: Database, path: str) -> None:
    if path == "/login":
        make_key(prepared, Role.READ)
    answer = visit(prepared).get(path)
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert answer.headers["Content-Security-Policy"] == (
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
        "img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    page = read(answer.text)
    assert [one.attributes["src"] for one in page.every("script")] == [
        f"/dashboard/page.js?{__version__}"
    ]
    assert page.every("style") == []
    assert "style=" not in answer.text


@pytest.mark.parametrize(
    ("name", "kind"),
    [("style.css", "text/css"), ("page.js", "text/javascript"), ("icon.svg", "image/svg+xml")],
)
def test_style_and_script_are_files(prepared: Database, name: str, kind: str) -> None:
    make_key(prepared, Role.READ)  # the way in has a style, too
    answer = visit(prepared).get(f"/dashboard/{name}")
    assert answer.status_code == 200
    assert answer.headers["Content-Type"].startswith(kind)
    assert "http://" not in answer.text.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in answer.text
