"""/v1/models and /v1/jobs: another model takes over, and the first comes back."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from api_client import TestClient, get, recorded, send, wait_for

import fairhorizon as fh
from fairhorizon.data.synthetic import synthetic
from fairhorizon.service.store.database import Database
from fairhorizon.service.store.state import popular_in_epoch

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def other_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of another method, of a later log that has one more article."""
    log = synthetic(40, 60, 14, seed=3).interactions
    rows = {
        "customer": [f"c{user}" for user in log.users.tolist()],
        "sku": [f"a{item}" if item else "a99" for item in log.items.tolist()],
        "day": list(range(len(log))),
    }
    later = fh.load(pl.DataFrame(rows), user="customer", item="sku", time="day", name="later")
    model = fh.fit(later, "itemknn+lists", limits=["popular<=0.5"])
    folder = tmp_path_factory.mktemp("other") / "run"
    model.save(folder)
    return folder


def finished(client: TestClient, asked: Any) -> Any:
    """The job, when it is done or has failed."""

    def job() -> Any:
        status = get(client, f"/v1/jobs/{asked['Id']}")
        return status if status["State"] in ("done", "failed") else None

    return wait_for(job, f"job {asked}")


def test_a_model_is_registered_promoted_and_rolled_back(
    shop: TestClient, other_run: Path, url: str
) -> None:
    assert shop.get("/api/recommend/c1").headers["X-Model"] == "1"
    asked = send(shop, "POST", "/v1/models", {"Folder": str(other_run)})
    job = finished(shop, asked)
    assert (job["Kind"], job["State"], job["Progress"]) == ("register", "done", 1.0)
    assert job["Message"] == "model 2 (POST /v1/models/2/promote)"
    assert job["CreatedAt"] <= job["EndedAt"]
    assert get(shop, "/api/item/a99")["ItemId"] == "a99"  # it brings its items along
    first, second = get(shop, "/v1/models")
    assert (first["Current"], second["Current"]) == (True, False)
    assert (second["Method"], second["Folder"]) == ("itemknn+lists@0.5", str(other_run))
    assert second["PromotedAt"] is None

    job = finished(shop, send(shop, "POST", "/v1/models/2/promote"))
    assert (job["State"], job["Message"]) == ("done", "model 2 is served")
    assert shop.get("/api/recommend/c1").headers["X-Model"] == "2"
    assert [one["Current"] for one in get(shop, "/v1/models")] == [False, True]

    assert finished(shop, send(shop, "POST", "/v1/models/rollback"))["State"] == "done"
    assert shop.get("/api/recommend/c1").headers["X-Model"] == "1"
    assert [row.model_id for row in recorded(url)] == [1, 2, 1]
    assert [one["Kind"] for one in get(shop, "/v1/jobs")] == ["promote", "promote", "register"]


def test_limits_stay_with_the_service_when_the_model_changes(
    shop: TestClient, other_run: Path
) -> None:
    shop.get("/api/recommend/c1")
    finished(shop, send(shop, "POST", "/v1/models", {"Folder": str(other_run)}))
    finished(shop, send(shop, "POST", "/v1/models/2/promote"))
    shop.get("/api/recommend/c1")
    (limit,) = get(shop, "/v1/limits")
    assert (limit["Limit"], limit["Shown"]) == ("popular<=0.3", 20)


def test_the_same_folder_by_another_name_is_the_same_model(
    shop: TestClient, shop_run: Path, tmp_path: Path
) -> None:
    link = tmp_path / "current"
    link.symlink_to(shop_run)
    for name in (f"{shop_run}/", f"{shop_run}/../{shop_run.name}", str(link)):
        job = finished(shop, send(shop, "POST", "/v1/models", {"Folder": name}))
        assert job["Message"] == "model 1 (POST /v1/models/1/promote)"
    assert len(get(shop, "/v1/models")) == 1


def test_a_folder_that_is_no_model_fails_with_the_reason(shop: TestClient, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{", encoding="utf-8")
    for folder in (tmp_path, tmp_path / "nothing", tmp_path / ("long" * 1000)):
        asked = send(shop, "POST", "/v1/models", {"Folder": str(folder)[:4096]})
        job = finished(shop, asked)
        assert job["State"] == "failed"
        assert str(folder) in job["Message"]
    assert [one["Id"] for one in get(shop, "/v1/models")] == [1]
    assert len(get(shop, "/v1/jobs")) == 3  # also of a folder whose name is long


def test_who_is_popular_is_decided_anew_when_it_is_asked_for(
    shop: TestClient, database: Database, url: str
) -> None:
    for item in range(6):  # an article that nobody takes, shown again and again
        body = {"UserId": f"c{item}", "Candidates": [{"Id": "a62", "Score": 1}]}
        for _ in range(20):
            send(shop, "POST", "/v1/rank", body)
    with database.reading() as connection:
        assert "a62" not in popular_in_epoch(connection, 1)
    job = finished(shop, send(shop, "POST", "/v1/jobs", {"Kind": "relabel"}))
    assert (job["State"], job["Message"]) == ("done", "epoch 2 of labels has begun")
    with database.reading() as connection:
        assert "a62" in popular_in_epoch(connection, 2)
    get(shop, "/api/recommend/c1")
    rows = recorded(url)
    assert (rows[0].epoch, rows[-1].epoch) == (1, 2)


def test_there_is_nothing_to_go_back_to_at_first(shop: TestClient) -> None:
    refused = shop.post("/v1/models/rollback")
    assert refused.status_code == 409
    assert refused.json() == {
        "error": "no other model was served before",
        "remedy": "GET /v1/models lists them",
    }


def test_models_and_jobs_that_are_not_there(shop: TestClient) -> None:
    refused = shop.post("/v1/models/7/promote")
    assert refused.status_code == 404
    assert refused.json() == {
        "error": "there is no model 7",
        "remedy": "register it: POST /v1/models",
    }
    refused = shop.get("/v1/jobs/7")
    assert refused.status_code == 404
    assert refused.json()["error"] == "there is no job 7"
    refused = shop.post("/v1/jobs", json={"Kind": "coffee"})
    assert refused.status_code == 422
    assert refused.json() == {"error": 'Kind = "coffee"', "remedy": "give one of relabel"}
