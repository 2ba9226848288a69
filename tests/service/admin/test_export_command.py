"""fairhorizon export: files that audit and fit read."""

import json
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
import sqlalchemy as sa
from asking import ask

from fairhorizon.cli.app import run
from fairhorizon.data.synthetic import synthetic
from fairhorizon.fcpo.retention.replay import FittedRetention
from fairhorizon.service.admin import export
from fairhorizon.service.budget.impressions import record_feedback
from fairhorizon.service.replica.list_builder import BuiltList, ListRequest
from fairhorizon.service.replica.replica import Engine
from fairhorizon.service.store.catalogue import forget_user
from fairhorizon.service.store.database import Database
from fairhorizon.service.store.feedback import Event
from fairhorizon.service.store.schema import feedback, lists

pytestmark = pytest.mark.slow

FILES = ("lists.parquet", "impressions.parquet", "feedback.parquet", "answers.parquet")
DAY = 86_400
NOON = 1_700_000_000.0

Replicas = Callable[..., Engine]


def url_of(engine: Engine) -> str:
    return engine.database.url.render_as_string(hide_password=False)


def exported(engine: Engine, out: Path, *options: str) -> list[pl.DataFrame]:
    assert run(["export", "--database", url_of(engine), "--out", str(out), *options]) == 0
    assert sorted(path.name for path in out.iterdir()) == sorted(FILES)
    return [pl.read_parquet(out / name) for name in FILES]


def events_on(engine: Engine, made: list[BuiltList]) -> None:
    """Everybody sees the first two items of their list, takes the second and then the third."""
    events = []
    for number, one in enumerate(made):
        read = [Event("read", one.user, item, list_id=one.id) for item in one.items[:2]]
        later = NOON + 100 * number
        second = Event("take", one.user, one.items[1], 2.0, later + 1, list_id=one.id)
        again = Event("like", one.user, one.items[1], 3.0, later + 2, list_id=one.id)
        third = Event("take", one.user, one.items[2], 1.0, later + 3)  # names no list
        events += [*read, second, again, third]
    record_feedback(engine.database, events, read=("read",))


def test_every_showing_is_there_with_what_became_of_it(
    replicas: Replicas, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "LISTS_AT_ONCE", 4)  # several blocks
    engine = replicas(explore=0.5)
    made = [ask(engine, f"c{number}", 6) for number in range(14)]
    events_on(engine, made)
    shown, impressions, done, answers = exported(engine, tmp_path / "out")

    assert answers.columns == ["user", "item", "time", "liked", "propensity"]
    for name in ("user", "item", "time", "propensity"):
        assert answers[name].equals(shown[name])
    assert answers["liked"].to_list() == [0, 1, 0, 0, 0, 0] * 14  # the third names no list

    assert shown.columns == [
        *("user", "rank", "item", "score", "value", "list", "time", "model", "epoch", "source"),
        "propensity",
    ]
    assert shown["list"].to_list() == [one.id for one in made for _ in one.items]
    assert shown["user"].to_list() == [one.user for one in made for _ in one.items]
    assert shown["item"].to_list() == [item for one in made for item in one.items]
    assert shown["rank"].to_list() == [*range(1, 7)] * 14
    assert shown["value"].to_list() == [value for one in made for value in one.values]
    assert shown["score"].to_list() == [score for one in made for score in one.scores]
    probabilities = [chance for one in made for chance in one.propensities or ()]
    assert shown["propensity"].to_list() == probabilities
    assert shown["model"].unique().to_list() == [1]
    assert shown["source"].unique().to_list() == ["recommend"]
    assert shown["time"].is_sorted()

    assert impressions["confirmed"].to_list() == [True, True, False, False, False, False] * 14
    assert impressions["answered"].to_list() == [False, True, False, False, False, False] * 14
    answered = impressions.filter(pl.col("answered"))
    assert answered["answered_at"].to_list() == [NOON + 100 * number + 1 for number in range(14)]
    assert answered["answer"].unique().to_list() == ["take"]
    assert impressions.filter(~pl.col("answered"))["answered_at"].null_count() == 14 * 5

    assert done.columns == ["user", "item", "timestamp", "rating", "type", "event", "list"]
    assert done["type"].value_counts().sort("type").rows() == [
        *(("like", 14), ("read", 28), ("take", 28)),
    ]
    second = done.filter((pl.col("type") == "take") & pl.col("list").is_not_null())
    assert second.select("user", "item", "timestamp", "rating").rows() == [
        (one.user, one.items[1], NOON + 100 * number + 1, 2.0) for number, one in enumerate(made)
    ]
    assert done["event"].n_unique() == len(done)


def test_lists_of_a_caller_have_no_model(replicas: Replicas, tmp_path: Path) -> None:
    engine = replicas()
    ask(engine, "c1", 2, candidates={"a1": 1.0, "a2": 3.0, "a4": 2.0})
    shown, impressions, done, _ = exported(engine, tmp_path / "out")
    assert shown["source"].to_list() == ["rank", "rank"]
    assert shown["model"].to_list() == [None, None]
    assert shown["propensity"].to_list() == [None, None]
    assert len(impressions) == 2
    assert done.is_empty()


def test_who_was_forgotten_is_left_out_but_showings_stay(
    replicas: Replicas, tmp_path: Path
) -> None:
    engine = replicas()
    made = [ask(engine, user, 5) for user in ("c1", "c2", "c3", "c2")]
    events_on(engine, made)
    with engine.database.writing() as connection:
        forget_user(engine.database, connection, "c2")
    shown, impressions, done, _ = exported(engine, tmp_path / "out")
    assert shown["list"].unique(maintain_order=True).to_list() == [made[0].id, made[2].id]
    assert set(done["user"]) == {"c1", "c3"}
    assert impressions["list"].to_list() == [one.id for one in made for _ in one.items]
    assert impressions["user"].to_list() == [
        *(["c1"] * 5),
        *([None] * 5),
        *(["c3"] * 5),
        *([None] * 5),
    ]
    assert impressions["confirmed"].sum() == 8  # what was seen stays, who did it does not


def test_from_to_and_types_choose_rows(replicas: Replicas, tmp_path: Path) -> None:
    engine = replicas()
    made = [ask(engine, f"c{number}", 5) for number in range(6)]
    events_on(engine, made)
    with engine.database.writing() as connection:
        for number, one in enumerate(made):  # a day each, from 2024-01-01
            day = lists.update().where(lists.c.id == one.id)
            connection.execute(day.values(served_at=1_704_067_200.0 + DAY * number))
            then = feedback.update().where(feedback.c.user_id == one.user)
            connection.execute(then.values(time=1_704_067_200.0 + DAY * number + 5))
    options = ["--from", "2024-01-02", "--to", "2024-01-04T00:00:00+00:00", "--type", "take"]
    shown, impressions, done, _ = exported(engine, tmp_path / "out", *options, "--type", "like")
    assert set(shown["user"]) == set(impressions["user"]) == set(done["user"]) == {"c1", "c2"}
    assert shown["time"].unique().sort().to_list() == [1_704_153_600.0, 1_704_240_000.0]
    assert set(done["type"]) == {"take", "like"}
    assert len(done) == 6
    _, impressions, done, _ = exported(engine, tmp_path / "out", "--from", "2024-01-06")
    assert impressions["user"].to_list() == ["c5"] * 5
    assert done["type"].to_list().count("read") == 2
    nothing = exported(engine, tmp_path / "out", "--to", "2023-12-31")
    assert [one.height for one in nothing] == [0, 0, 0, 0]
    assert nothing[0].schema == shown.schema


def test_what_was_refused_was_not_liked(replicas: Replicas, tmp_path: Path) -> None:
    engine = replicas()
    made = ask(engine, "c1", 3)
    kinds = zip(("hide", "take", "wow"), made.items, strict=True)
    events = [Event(kind, "c1", item, list_id=made.id) for kind, item in kinds]
    record_feedback(engine.database, events, read=("read",))
    *_, answers = exported(engine, tmp_path / "out")
    assert answers["liked"].to_list() == [0, 1, 1]
    *_, answers = exported(engine, tmp_path / "out", "--negative", "wow", "--read", "take")
    assert answers["liked"].to_list() == [1, 0, 0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--from", "yesterday"], "--from 'yesterday': is no date (give one such as 2026-11-17"),
        (["--from", "2024-01-02", "--to", "2024-01-02"], "there is no time between them"),
    ],
)
def test_times_that_cannot_be_meant(
    tmp_path: Path, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert run(["export", "--database", "x.db", "--out", str(out), *options]) == 1
    assert message in capsys.readouterr().err
    assert not out.exists()


def shop_log(file: Path) -> Path:
    log = synthetic(40, 60, 12, seed=3).interactions
    rows = {
        "user": [f"c{user}" for user in log.users.tolist()],
        "item": [f"a{item}" for item in log.items.tolist()],
        "timestamp": [DAY * row for row in range(len(log))],
    }
    pl.DataFrame(rows).write_csv(file)
    return file


def test_audit_reads_the_lists(replicas: Replicas, tmp_path: Path) -> None:
    """Also lists that one user was given in the same moment."""
    engine = replicas()
    made = [ask(engine, f"c{number % 30}") for number in range(50)]
    crowd = Engine(engine.database, engine.settings)
    crowd.prepare()
    waiting = [crowd.submit(ListRequest("c1", 10)) for _ in range(3)]
    crowd.start()
    made += [one.result(timeout=60) for one in waiting]
    crowd.stop()
    with engine.database.reading() as connection:
        moments = connection.execute(sa.select(lists.c.served_at)).scalars().all()
    assert len(set(moments[-3:])) == 1
    shown, *_ = exported(engine, tmp_path / "out")
    assert len(shown) == sum(len(one.items) for one in made)
    table = tmp_path / "items.csv"
    sellers = {f"a{item}": "small" if item % 3 == 0 else "big" for item in range(63)}
    pl.DataFrame({"item": list(sellers), "seller": list(sellers.values())}).write_csv(table)
    result = tmp_path / "audit.json"
    data = ["--data", str(shop_log(tmp_path / "log.csv")), "--item-table", str(table)]
    limit = ["--limit", "seller=small>=0.2", "--ignore-unknown", "--json", str(result)]
    assert run(["audit", str(tmp_path / "out/lists.parquet"), *data, *limit, "--k", "5"]) == 0
    known = [item for one in made for item in one.items if int(item[1:]) < 60]
    share = sum(sellers[item] == "small" for item in known) / len(known)
    (row,) = json.loads(result.read_text())["rows"]
    assert row["limits"][0]["reached"] == pytest.approx(share, abs=1e-12)


@pytest.mark.parametrize("method", ["popularity", "ease"])
def test_fit_reads_the_feedback(replicas: Replicas, tmp_path: Path, method: str) -> None:
    engine = replicas()
    made = [ask(engine, f"c{number}", 8) for number in range(20)]
    events = [
        Event("take", one.user, item, 1.0, NOON + 10 * place + number, list_id=one.id)
        for number, one in enumerate(made)
        for place, item in enumerate(one.items)
    ]
    record_feedback(engine.database, events, read=("read",))
    record_feedback(engine.database, [Event("read", "c0", "a1", time=NOON)], read=("read",))
    *_, done, _ = exported(engine, tmp_path / "out", "--type", "take")
    assert len(done) == 160
    file, model = tmp_path / "out/feedback.parquet", tmp_path / "run"
    assert run(["fit", method, "--data", str(file), "--out", str(model)]) == 0
    assert run(["recommend", str(model), "--k", "3", "--out", str(tmp_path / "l.csv")]) == 0
    served = pl.read_csv(tmp_path / "l.csv")
    assert set(served["user"]) == {f"c{number}" for number in range(20)}
    assert set(served["item"]) <= set(done["item"])


def test_fit_learns_from_the_answers(replicas: Replicas, tmp_path: Path) -> None:
    """Everybody takes half of what they see, but for c10 to c19, who come on the first day only."""
    engine = replicas()
    days = [(day, number) for day in range(6) for number in range(10 if day else 20)]
    made, events = [], []
    for day, number in days:
        made.append(ask(engine, f"c{number}", 4))
        own = [
            Event("take", f"c{number}", item, 1.0, NOON + DAY * day, list_id=made[-1].id)
            for item in made[-1].items[: 2 if number < 10 else 1]
        ]
        record_feedback(engine.database, own, read=("read",))
        events += own
    with engine.database.writing() as connection:
        for (day, _), one in zip(days, made, strict=True):
            then = lists.update().where(lists.c.id == one.id)
            connection.execute(then.values(served_at=NOON + DAY * day))
    *_, answers = exported(engine, tmp_path / "out", "--type", "take")
    assert answers["liked"].sum() == len(events)
    out, model = tmp_path / "out", tmp_path / "run"
    command = [
        "fit",
        "ease+lists@0.4",
        "--data",
        str(out / "feedback.parquet"),
        "--out",
        str(model),
    ]
    options = ["--answers", str(out / "answers.parquet"), "--away", "3"]
    assert run([*command, *options, "--all"]) == 0
    retention = FittedRetention.load(model / "retention.safetensors")
    assert set(retention.users) == {f"c{number}" for number in range(20)}
    stay = retention.responses["stay"][[retention.rows["c3"], retention.rows["c13"]]]
    assert stay.tolist() == [24, 4]
    assert retention.until == pytest.approx(NOON + 5 * DAY, abs=1)
    served = tmp_path / "l.csv"
    assert run(["recommend", str(model), "--k", "3", "--value", "long", "--out", str(served)]) == 0
    assert len(pl.read_csv(served)) == 60


def test_the_files_are_of_one_state_of_the_database(replicas: Replicas) -> None:
    engine = replicas()
    ask(engine, "c1")
    count = sa.select(sa.func.count()).select_from(lists)
    with engine.database.reading() as connection:
        assert connection.execute(count).scalar_one() == 1
        made = ask(engine, "c2")  # by another connection
        assert connection.execute(count).scalar_one() == 1
        events_on(engine, [made])
        assert connection.execute(sa.select(feedback)).all() == []
    with engine.database.reading() as connection:
        assert connection.execute(count).scalar_one() == 2


def test_a_failure_leaves_no_file(
    replicas: Replicas, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = replicas()
    ask(engine, "c1")
    out = tmp_path / "deep" / "out"
    real = pl.LazyFrame.sink_parquet

    def full(frame: pl.LazyFrame, path: str | Path, **how: object) -> object:
        if Path(path).name.startswith(".feedback"):
            raise OSError(28, "No space left on device")
        return real(frame, path, **how)  # type: ignore[call-overload]

    monkeypatch.setattr(pl.LazyFrame, "sink_parquet", full)
    assert run(["export", "--database", url_of(engine), "--out", str(out)]) == 1
    assert not out.parent.exists()


def test_a_database_without_tables_or_that_is_not_there_is_refused(
    bare_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    database = Database(bare_url)
    with database.reading():  # SQLite makes its file
        pass
    database.close()
    for address, message in (
        (bare_url, "has no tables of the service (check --database"),
        (str(tmp_path / "typo.db"), "there is no such file (check --database)"),
    ):
        assert run(["export", "--database", address, "--out", str(out)]) == 1
        assert message in capsys.readouterr().err
    assert not out.exists()
    assert not (tmp_path / "typo.db").exists()
