"""The service as a process: sizes, secrets, workers, TLS, and an end at any moment."""

import ssl
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
import sqlalchemy as sa
from api_client import recorded, wait_for
from live_server import LiveServer, command
from prometheus_client.parser import text_string_to_metric_families

from fairhorizon.cli.app import run
from fairhorizon.service.admin.set_up import prepare
from fairhorizon.service.settings import LARGEST_BODY, Role
from fairhorizon.service.store import keys
from fairhorizon.service.store.database import Database
from fairhorizon.service.store.schema import replicas

pytestmark = pytest.mark.slow

Begin = Callable[..., LiveServer]
JSON = {"content-type": "application/json"}
EVENT = {"FeedbackType": "like", "UserId": "c1", "ItemId": "a1"}


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Starts servers, which end with the test."""
    begun: list[LiveServer] = []

    def start(*arguments: object, **more: object) -> LiveServer:
        server = LiveServer.start(tmp_path / "log", *map(str, arguments), **more)
        begun.append(server)
        return server

    yield start
    for server in begun:
        server.kill()


def key_of(url: str, role: Role) -> str:
    database = Database(url)
    prepare(database)
    with database.writing() as connection:
        made = keys.make(database, connection, "test", role)
    database.close()
    return made


def with_password(url: str, password: str) -> str:
    return url.replace("fairhorizon@", f"fairhorizon:{password}@")


def test_sizes_ids_and_secrets_of_a_real_server(url: str, shop_run: Path, begin: Begin) -> None:
    given = with_password(url, "pass-word-9")  # PostgreSQL trusts everybody here, and takes it
    key = key_of(url, Role.ADMIN)
    server = begin("--run", shop_run, "--database", given)
    head = {"X-API-Key": key}

    # paths as they are sent, byte by byte
    for name, sent in (
        ("a/b", "a%2Fb"),
        ("%2F", "%252F"),
        ("👩", "%F0%9F%91%A9"),
        ("..", "%2E%2E"),
    ):
        inserted = server.call("POST", "/api/item", json={"ItemId": name}, headers=head)
        assert inserted.json() == {"RowAffected": 1}
        raw = httpx.URL(f"http://localhost:{server.port}").copy_with(
            raw_path=f"/api/item/{sent}".encode()
        )
        assert httpx.get(raw, headers=head).json()["ItemId"] == name
    assert server.call("GET", "/api/item/a%00b", headers=head).status_code == 422
    assert server.call("GET", "/api/item/%ff", headers=head).status_code == 400
    assert server.call("GET", f"/api/item/{'x' * 5000}", headers=head).status_code == 422

    # bodies that are too large, announced or not
    too_large = b" " * (LARGEST_BODY + 1)
    for content in (too_large, iter([too_large[: 2**20]] * 17)):
        refused = server.call("POST", "/api/feedback", content=content, headers={**head, **JSON})
        assert refused.status_code == 413
        assert refused.json()["remedy"] == "send it in several calls"
    assert server.call("POST", "/api/feedback", json=[EVENT], headers=head).status_code == 200

    # a key and a password are told to nobody
    texts = []
    for wrong in (key[:-1], f"{key}x", "' OR 1=1 --"):
        refused = server.call("GET", "/v1/limits", headers={"X-API-Key": wrong})
        assert refused.status_code == 401
        texts.append(refused.text)
    paths = ("/v1/limits", "/v1/models", "/metrics", "/openapi.json", f"/nowhere?key={key}")
    texts += [server.call("GET", path, headers=head).text for path in paths]
    failing = {"Folder": "/nowhere/at-all"}
    job = server.call("POST", "/v1/models", json=failing, headers=head).json()
    wait_for(
        lambda: (
            server.call("GET", f"/v1/jobs/{job['Id']}", headers=head).json()["State"] == "failed"
        ),
        "the job",
    )
    texts.append(server.call("GET", "/v1/jobs", headers=head).text)
    assert server.stop() == 0
    printed = server.printed()
    assert "no model here" in printed  # it does print what goes wrong
    assert "serving at http://127.0.0.1:" in printed
    secret = key.split("_", 2)[2]
    for text in (printed, *texts):
        assert secret not in text
        assert "pass-word-9" not in text
        assert "Traceback" not in text
    assert not any(url in text for text in texts)  # nor where the database is


def test_others_reach_it_only_with_keys(tmp_path: Path, shop_run: Path, begin: Begin) -> None:
    url = str(tmp_path / "shop.db")
    arguments = ("--run", str(shop_run), "--database", url, "--host", "0.0.0.0")
    refused = command("serve", *arguments)
    assert refused.returncode == 1
    assert refused.stderr.splitlines()[-1].endswith(
        "0.0.0.0: others can reach this address, and there are no keys (make one first: "
        "fairhorizon keys make --role admin --name NAME --database ...)"
    )
    head = {"X-API-Key": key_of(url, Role.READ)}
    server = begin(*arguments)
    assert server.call("GET", "/api/recommend/c1").status_code == 401
    assert len(server.call("GET", "/api/recommend/c1", headers=head).json()) == 10
    foreign = {**head, "Host": "shop.example"}
    assert server.call("GET", "/api/recommend/c1", headers=foreign).status_code == 200


def test_a_database_that_cannot_be_reached_ends_it_without_its_password() -> None:
    address = "postgresql://somebody:pass-word-9@127.0.0.1:1/none"
    failed = command("serve", "--database", address)
    assert failed.returncode == 1
    assert "the database does not answer" in failed.stderr
    assert "pass-word-9" not in failed.stderr + failed.stdout


def test_two_workers_share_budgets_and_counts(url: str, shop_run: Path, begin: Begin) -> None:
    server = begin("--run", shop_run, "--database", url, "--workers", 2)
    database = Database(url)

    def workers() -> list[int]:
        with database.reading() as connection:
            return list(connection.execute(sa.select(replicas.c.pid)).scalars())

    assert len(set(wait_for(lambda: len(workers()) == 2 and workers(), "both"))) == 2
    for number in range(60):
        answer = server.call("GET", f"/api/recommend/c{number % 40}")
        assert answer.status_code == 200
    rows = recorded(url)
    assert [row.number for row in rows] == list(range(1, 61))
    assert len({row.replica_id for row in rows}) == 2  # both have served
    shown = sum(len(row.items) for row in rows)
    inside = sum(map(bool, (place for row in rows for place in row.labels)))
    (limit,) = server.call("GET", "/v1/limits").json()
    assert (limit["Shown"], limit["Groups"][0]["Spent"], limit["Kept"]) == (shown, inside, True)
    text = server.call("GET", "/metrics").text
    counted = {
        tuple(sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "fairhorizon_requests_total"
    }
    assert counted["/api/recommend/{user}", "200"] == 60  # of both workers
    assert server.stop() == 0
    assert workers() == []  # both have given their leases back
    database.close()


def test_after_an_end_at_any_moment_it_goes_on(url: str, shop_run: Path, begin: Begin) -> None:
    server = begin("--run", shop_run, "--database", url)
    served = [server.call("GET", f"/api/recommend/c{n}").headers["X-List-Id"] for n in range(5)]
    assert server.call("POST", "/api/feedback", json=[EVENT]).json() == {"RowAffected": 1}
    server.kill()
    again = begin("--run", shop_run, "--database", url)
    assert again.call("POST", "/api/feedback", json=[EVENT]).json() == {"RowAffected": 0}
    served.append(again.call("GET", "/api/recommend/c1").headers["X-List-Id"])
    assert [row.id for row in recorded(url)] == served
    (limit,) = again.call("GET", "/v1/limits").json()
    assert limit["Shown"] == 60
    charged, spent = (limit["Groups"][0][name] for name in ("Charged", "Spent"))
    assert charged - spent <= limit["Slack"]  # the lease of the first was taken back


def test_tls(
    tmp_path: Path, shop_run: Path, begin: Begin, capsys: pytest.CaptureFixture[str]
) -> None:
    certificate, private = tmp_path / "certificate.pem", tmp_path / "key.pem"
    making = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1"
    whose = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost")
    files = ("-keyout", str(private), "-out", str(certificate))
    subprocess.run([*making.split(), *whose, *files], check=True, capture_output=True)
    options = ("--tls-certificate", certificate, "--tls-key", private)
    server = begin(
        *("--run", shop_run, "--database", tmp_path / "shop.db"),
        *options,
        scheme="https",
        verify=ssl.create_default_context(cafile=certificate),
    )
    assert len(server.call("GET", "/api/recommend/c1").json()) == 10
    with pytest.raises(httpx.TransportError):
        httpx.get(f"http://localhost:{server.port}/api/health/live")
    assert run(["serve", "--run", str(shop_run), "--tls-certificate", str(certificate)]) == 2
    assert "a certificate and its key go together" in capsys.readouterr().err
