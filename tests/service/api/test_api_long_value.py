"""value = "long" over HTTP: answers decide who gets what is scarce, and nothing else changes."""

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from api_client import TestClient, get, recorded, send, wait_for

import fairhorizon as fh
from fairhorizon.data.synthetic import synthetic
from fairhorizon.errors import ConfigError
from fairhorizon.fcpo.retention.replay import best_open
from fairhorizon.model.serving import RepeatRule, Requests, UserHistory
from fairhorizon.service.admin.set_up import set_up
from fairhorizon.service.app import build_app
from fairhorizon.service.background import Service
from fairhorizon.service.settings import ServiceSettings
from fairhorizon.service.store.database import Database

pytestmark = pytest.mark.slow

DAY, USERS = 86_400, 40


@pytest.fixture(scope="module")
def long_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shop, with answers of other people: who likes nothing twice in a row leaves."""
    log = synthetic(USERS, 60, 12, seed=3).interactions
    columns = {
        "customer": [f"c{user}" for user in log.users.tolist()],
        "sku": [f"a{item}" for item in log.items.tolist()],
        "day": [DAY * row for row in range(len(log))],
    }
    draw, rows = np.random.default_rng(0), []
    for user in range(600):
        before = True
        for day in range(30):
            liked = bool(draw.random() < 0.5)
            rows.append((f"s{user}", f"a{draw.integers(60)}", DAY * day, int(liked)))
            if not liked and not before:
                break
            before = liked
    names = ["user", "item", "time", "liked"]
    model = fh.fit(
        fh.load(pl.DataFrame(columns), user="customer", item="sku", time="day", name="shop"),
        "ease+lists",
        limits=["popular<=0.3"],
        answers=pl.DataFrame(rows, schema=names, orient="row"),
        away=5,
    )
    folder = tmp_path_factory.mktemp("long") / "run"
    model.save(folder)
    return folder


@contextmanager
def opened(file: Path, run: Path | None, **settings: object) -> Iterator[TestClient]:
    chosen, database = ServiceSettings.model_validate(settings), Database(str(file))
    set_up(database, chosen, run=run)
    app = build_app(Service(database, chosen))
    with TestClient(app, base_url="http://localhost", raise_server_exceptions=False) as client:
        yield client


def take(client: TestClient, user: str, *, named: bool, kind: str = "take") -> str:
    """A list of one item, which is taken; only feedback that names the list is a like of it."""
    answer = client.get(f"/api/recommend/{user}", params={"n": 1})
    (item,) = answer.json()
    event = {"FeedbackType": kind, "UserId": user, "ItemId": item, "Timestamp": "2026-01-01"}
    if named:
        event["ListId"] = answer.headers["X-List-Id"]
    send(client, "POST", "/api/feedback", [event])
    return str(item)


def swept(
    file: Path, run: Path, named: Callable[[int], bool], **settings: object
) -> tuple[list[str], list[bool], list[float]]:
    """Everybody takes three items, some like the last: what they get then, its group, its value.

    Two are liked by all of them, so that the price is that of a binding limit.
    """
    with opened(file, run, **settings) as client:
        for user in [*range(USERS)] * 2:
            take(client, f"c{user}", named=True)
        for user in range(USERS):
            take(client, f"c{user}", named=named(user))
        items = [get(client, f"/api/recommend/c{user}?n=1")[0] for user in range(USERS)]
    rows = recorded(str(file))
    shown = sum(len(row.items) for row in rows)
    assert sum(bool(groups) for row in rows for groups in row.labels) <= 0.3 * shown
    later = rows[3 * USERS :]
    values = [row._mapping["values"][0] for row in later]
    return items, [bool(row.labels[0]) for row in later], values


def is_even(user: int) -> bool:
    return user % 2 == 0


def is_odd(user: int) -> bool:
    return user % 2 == 1


@pytest.fixture
def files(migrated_file: Path, tmp_path: Path) -> Callable[[], Path]:
    def new() -> Path:
        file = tmp_path / f"{len(list(tmp_path.iterdir()))}.db"
        shutil.copyfile(migrated_file, file)
        return file

    return new


def test_answers_decide_who_gets_what_is_scarce(files: Any, long_run: Path) -> None:
    """Histories are the same in both runs; whose take was a like of a showing is not."""
    even, odd = (swept(files(), long_run, named, value="long") for named in (is_even, is_odd))
    # who has just liked nothing is near to leaving: the other half of the users, in each run
    for mine, other, half in ((even, odd, slice(1, None, 2)), (odd, even, slice(0, None, 2))):
        assert sum(mine[1][half]) > sum(other[1][half])
    values = np.array(even[2]) / np.array(odd[2])
    same = [a == b for a, b in zip(even[0], odd[0], strict=True)]
    ratios = values[np.array(same) & (np.arange(USERS) % 2 == 1)]
    assert len(ratios) > 5
    assert (ratios > 1.2).all()


def test_without_the_setting_answers_change_nothing(files: Any, long_run: Path) -> None:
    even, odd = (swept(files(), long_run, named) for named in (is_even, is_odd))
    assert even == odd


def test_values_are_multiplied_by_the_worth_of_the_standing(files: Any, long_run: Path) -> None:
    file, plain, model = files(), files(), fh.open_model(long_run)
    with opened(file, long_run, value="long") as client:
        take(client, "c1", named=True)
        take(client, "c1", named=True, kind="dislike")  # names the list, and is no like
        take(client, "c1", named=False)
        get(client, "/api/recommend/c1?n=2")
    *shown, last = recorded(str(file))
    with opened(plain, long_run) as client:
        for number, row in enumerate(shown):
            event = {"FeedbackType": "dislike" if number == 1 else "take", "UserId": "c1"}
            event |= {"ItemId": row.items[0], "Timestamp": "2026-01-01"}
            send(client, "POST", "/api/feedback", [event])
        get(client, "/api/recommend/c1?n=2")
    long, now = (
        dict(zip(row.items, row._mapping["values"], strict=True))
        for row in (last, recorded(str(plain))[0])
    )
    worth = [long[item] / now[item] for item in long.keys() & now.keys()]
    assert worth

    retention, state = model.retention, model.state
    known = state.users.find("c1")
    assert retention is not None
    assert known is not None
    later = [state.catalogue.codes[shown[number].items[0]] for number in (0, 2)]
    person = UserHistory("c1", known.code, np.append(known.items, later))
    scenario = Requests([person], None, RepeatRule()).scenario(
        state.users, state.n_items, state.unlimited.queue_length
    )
    assert scenario.taken is not None
    made = state.unlimited.item_values(scenario, length=2)
    responses = retention.responses_of(["c1"], scenario.taken)
    assert responses.stay.tolist() == [0]  # the record is of others
    responses.see(torch.zeros(1, 3).long(), torch.tensor([[True, False, False]]))
    best = best_open(made.items, made.probabilities, state.unlimited.sensitive_)
    assert worth == pytest.approx([float(retention.worth(responses, best))] * len(worth), rel=1e-5)


def test_a_replica_that_starts_again_goes_on_as_one_that_did_not(
    files: Any, long_run: Path, tmp_path: Path
) -> None:
    file, copy = files(), tmp_path / "copy.db"
    with opened(file, long_run, value="long") as client:
        for user in range(20):
            take(client, f"c{user}", named=user % 3 > 0)
        with sqlite3.connect(file) as source, sqlite3.connect(copy) as target:
            source.backup(target)
        going_on = [get(client, f"/api/recommend/c{user}?n=3") for user in range(3)]
    with opened(copy, None, value="long") as client:
        again = [get(client, f"/api/recommend/c{user}?n=3") for user in range(3)]
    assert again == going_on
    rows = [
        [(row.scores, row._mapping["values"]) for row in recorded(str(one))[20:]]
        for one in (file, copy)
    ]
    assert rows[0] == rows[1]


def test_a_model_without_answers_is_refused(files: Any, long_run: Path, shop_run: Path) -> None:
    with pytest.raises(ConfigError, match=r"has learned from no answers .*--answers FILE"):
        set_up(Database(str(files())), ServiceSettings(value="long"), run=shop_run)
    with opened(files(), long_run, value="long") as client:
        asked = send(client, "POST", "/v1/models", {"Folder": str(shop_run)})

        def job() -> Any:
            status = get(client, f"/v1/jobs/{asked['Id']}")
            return status if status["State"] in ("done", "failed") else None

        job_done = wait_for(job, "the job")
        assert job_done["State"] == "failed"
        assert "has learned from no answers" in job_done["Message"]
