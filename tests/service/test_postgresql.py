"""Once through the whole service on PostgreSQL; other tests of pages and routes are on SQLite."""

from pathlib import Path

import polars as pl
import pytest
import sqlalchemy as sa
from asgi_client import AsgiClient

from fairhorizon.service.admin.export import Wanted, export
from fairhorizon.service.admin.forget import remove
from fairhorizon.service.admin.set_up import set_up
from fairhorizon.service.app import build_app
from fairhorizon.service.background import Service
from fairhorizon.service.monitoring.alerts import look
from fairhorizon.service.monitoring.counts import roll_up
from fairhorizon.service.settings import ServiceSettings
from fairhorizon.service.store.database import Database
from fairhorizon.service.store.schema import lists
from service_checks import accounts_agree

pytestmark = [
    pytest.mark.parametrize("dialect", ["postgresql"], indirect=True),
    pytest.mark.slow,
]


def test_everything_that_asks_the_database(
    database: Database, shop_run: Path, tmp_path: Path
) -> None:
    settings = ServiceSettings(counts="confirmed", slack=40, provider="seller")
    set_up(database, settings, run=shop_run)
    service = Service(database, settings)
    client = AsgiClient(build_app(service))
    service.engine.prepare()
    service.engine.start()  # without the maintenance, whose work is done step by step below

    def call(method: str, path: str, expected: int = 200, **more: object) -> object:
        answer = client.call(method, path, **more)
        assert answer.status_code == expected, (path, answer.text)
        return answer.json() if "json" in answer.headers["Content-Type"] else answer.text

    # lists, and what comes of them
    for number in range(3):
        served = client.get(f"/api/recommend/c{number}")
        assert len(served.json()) == 10
        seen = {"UserId": f"c{number}", "ListId": served.headers["X-List-Id"]}
        events = [
            {"FeedbackType": kind, "ItemId": item, **seen}
            for kind in ("read", "like")
            for item in served.json()[:4]
        ]
        assert call("POST", "/api/feedback", json=events) == {"RowAffected": 8}
        assert call("POST", "/api/feedback", json=events) == {"RowAffected": 0}
    candidates = [{"Id": f"a{number}", "Score": float(number)} for number in range(20)]
    ranked = call("POST", "/v1/rank", json={"UserId": "c1", "Candidates": candidates, "N": 5})
    assert isinstance(ranked, list)
    assert len(ranked) == 5

    # items, users, limits, models and jobs
    item = {"ItemId": "new", "Labels": {"seller": "small", "title": "A new one"}}
    assert call("POST", "/api/items", json=[item]) == {"RowAffected": 1}
    call("PATCH", "/api/item/new", json={"IsHidden": True})
    call("PUT", "/api/item/new/category/toys")
    assert call("DELETE", "/api/item/new") == {"RowAffected": 1}
    call("POST", "/api/users", json=[{"UserId": "c1", "Labels": ["x"]}])
    call("GET", "/api/items?n=5")
    call("GET", "/api/users")
    call("GET", "/api/feedback?n=3")
    call("GET", "/api/user/c1/feedback/like")
    call("POST", "/v1/limits", 201, json={"Limit": "seller:each<=0.9", "Window": "day"})
    call("PATCH", "/v1/limits/2", json={"Slack": 30})
    call("DELETE", "/v1/limits/3")
    assert client.get("/api/recommend/c7").status_code == 200
    limits = call("GET", "/v1/limits?ended=true")
    assert isinstance(limits, list)
    assert [one["Kept"] for one in limits if one["EndedAt"] is None] == [True]
    call("POST", "/v1/models", 202, json={"Folder": str(shop_run)})
    call("POST", "/v1/jobs", 202, json={"Kind": "relabel"})
    assert service.engine.replica.id is not None
    while service.maintenance._jobs.work(service.engine.replica.id):
        pass
    jobs = call("GET", "/v1/jobs")
    assert isinstance(jobs, list)
    assert [one["State"] for one in jobs] == ["done", "done"]

    # counts over time, alerts, pages
    while roll_up(database):
        pass
    assert look(database, settings, service.engine.snapshot) == []
    exposure = call("GET", "/v1/exposure")
    assert isinstance(exposure, dict)
    assert exposure["Showings"] == 45
    assert {one["Provider"] for one in exposure["Providers"]} == {"small", "big"}
    call("GET", "/metrics")
    for path in ("/", "/dashboard/limits", "/dashboard/item/a1", "/dashboard/user/c1"):
        assert "<h1" in str(call("GET", path)), path

    # files, and a person who is forgotten
    export(database, tmp_path, Wanted(read=("read",)))
    assert len(pl.read_parquet(tmp_path / "impressions.parquet")) == 45
    assert pl.read_parquet(tmp_path / "impressions.parquet")["confirmed"].sum() == 12
    rows, *_ = remove(database, "c1")
    assert rows == {"users": 1, "feedback": 8, "lists": 2}
    with database.reading() as connection:
        query = sa.select(sa.func.count()).select_from(lists).where(lists.c.user_id == "c1")
        assert connection.execute(query).scalar() == 0
    service.engine.stop()
    assert accounts_agree(database)
