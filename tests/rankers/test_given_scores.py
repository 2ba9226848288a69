"""Scores and lists of other programs: read, refused, served as they are, and behind re-rankers."""

import itertools
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from fairhorizon.cli.app import run
from fairhorizon.data.frames import from_arrays
from fairhorizon.data.given_file import GivenFile
from fairhorizon.data.splits import Split, split
from fairhorizon.errors import DataError
from fairhorizon.evaluation.short_term import evaluate
from fairhorizon.methods import Method, MethodError, build, load_method
from fairhorizon.rankers.ease import Ease
from fairhorizon.rankers.given_scores import GivenScores, read_scores
from fairhorizon.recommenders.given_lists import GivenLists
from fairhorizon.recommenders.ranked.model import Ranked
from fairhorizon.rerank.quota import Quota
from fairhorizon.simulation.feedback import evaluation_scenario
from fairhorizon.vocabulary import Protocol

TWO_USERS = from_arrays([7, 7, 8, 8], ["a", "b", "b", "c"], timestamps=[1, 2, 3, 4])
ROWS = [(7, "a", 0.5), (7, "c", 2.5), (8, "b", -1.0)]
NO_QUEUE = torch.zeros(2, 1, dtype=torch.int64)


def csv_of(folder: Path, rows: list[tuple[object, ...]], head: str = "user,item,score") -> Path:
    path = folder / "scores.csv"
    path.write_text("\n".join([head, *(",".join(map(str, row)) for row in rows)]))
    return path


def given(path: Path) -> GivenScores:
    return GivenScores(GivenFile.from_path(path)).fit(split(TWO_USERS))


def test_an_item_without_a_score_is_one_spread_below_the_worst(tmp_path: Path) -> None:
    table = given(csv_of(tmp_path, ROWS)).scores(torch.tensor([1, 0]), NO_QUEUE)
    # user 7: worst 0.5, best 2.5, so 0.5 - 2; user 8 has one score, so 1 below it
    assert table.tolist() == [[-2.0, -1.0, -2.0], [0.5, -1.5, 2.5]]


def test_csv_parquet_and_npz_hold_the_same(tmp_path: Path) -> None:
    users, items, scores = zip(*ROWS, strict=True)
    pl.DataFrame({"user_id": users, "item_id": items, "prediction": scores}).write_parquet(
        tmp_path / "s.parquet"
    )
    np.savez(tmp_path / "s.npz", user=users, item=np.array(items), score=scores)
    expected = given(csv_of(tmp_path, ROWS)).scores(torch.arange(2), NO_QUEUE)
    for name in ("s.parquet", "s.npz"):
        assert torch.equal(given(tmp_path / name).scores(torch.arange(2), NO_QUEUE), expected)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([*ROWS, (9, "a", 1)], r"line 5: user '9' is not in .*1 of 4 rows have such a user"),
        ([*ROWS, (7, "z", 1)], r"line 5: item 'z' is not in .*score the users and items of"),
        ([*ROWS, (7, "a", 1)], r"line 5: user 7 and item a have a score already \(drop one"),
        ([*ROWS, (8, "a", "nan")], r"line 5: score is missing \(NaN\) \(fill the cell or"),
        ([*ROWS, (8, "a", "high")], r"line 5: score 'high' is not a number"),
        (ROWS[:2], r"user 8 has no score, nor have 0 others of 2 \(score some items for every"),
    ],
)
def test_what_is_wrong_is_told_with_file_and_line(
    tmp_path: Path, rows: list[tuple[object, ...]], message: str
) -> None:
    with pytest.raises(DataError, match=f"scores.csv.*{message}"):
        read_scores(csv_of(tmp_path, rows), TWO_USERS)


def test_wrong_files_are_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no column looks like the score.*call one `score`"):
        read_scores(csv_of(tmp_path, ROWS, "user,item,s"), TWO_USERS)
    np.savez(tmp_path / "a.npz", user=[7], item=["a"])
    with pytest.raises(DataError, match=r"a.npz: there is no array 'score' \(write it with numpy"):
        read_scores(tmp_path / "a.npz", TWO_USERS)
    np.savez(tmp_path / "b.npz", user=[7], item=["a"], score=[1.0, 2.0])
    with pytest.raises(DataError, match=r"shapes \(1,\), \(1,\), \(2,\) \(give three of one"):
        read_scores(tmp_path / "b.npz", TWO_USERS)
    (tmp_path / "c.npz").write_text("user,item,score")
    with pytest.raises(DataError, match=r"c.npz: cannot be read"):
        read_scores(tmp_path / "c.npz", TWO_USERS)
    file = GivenFile.from_path(csv_of(tmp_path, ROWS))
    csv_of(tmp_path, ROWS[:1])
    with pytest.raises(DataError, match="has changed since it was named"):
        GivenScores(file).fit(split(TWO_USERS))


@pytest.fixture
def scored(market: Split, tmp_path: Path) -> Path:
    """The scores of EASE for everybody, as another program would write them."""
    ease = Ease().fit(market)
    scenario = evaluation_scenario(market, ease.queue_length, Protocol.STANDARD)
    table = ease.scores(torch.arange(60), scenario.queue).double().numpy()
    log = market.train
    rows = [
        (log.user_ids[u], log.item_ids[i], repr(float(table[u, i])))
        for u, i in itertools.product(range(60), range(80))
    ]
    return csv_of(tmp_path, rows)


@pytest.mark.parametrize("reranker", [None, Quota(share=0.3)])
def test_the_lists_are_those_of_the_ranker_that_made_the_scores(
    market: Split, scored: Path, tmp_path: Path, reranker: Quota | None
) -> None:
    model = Ranked(GivenScores(GivenFile.from_path(scored)), reranker).fit(market)
    expected = evaluate(Ranked(Ease(), reranker).fit(market), market, ks=[10])
    assert np.array_equal(evaluate(model, market, ks=[10]).lists, expected.lists)
    model.save(tmp_path / "m.safetensors")
    again = load_method(tmp_path / "m.safetensors")
    assert np.array_equal(evaluate(again, market, ks=[10]).lists, expected.lists)


def test_finished_lists_stay_as_they_are(market: Split, tmp_path: Path) -> None:
    log, file = market.train, tmp_path / "lists.csv"
    seen = int(log.items[log.users == 0][0])  # even an item of the history
    others = [item for item in range(80) if item != seen][:2]
    lines = [
        f"{log.user_ids[0]},{log.item_ids[item]},{rank}"
        for rank, item in enumerate([others[0], seen, others[1]], start=1)
    ]
    file.write_text("\n".join(["user,item,rank", *lines]))
    model = GivenLists(GivenFile.from_path(file)).fit(market)
    model.save(tmp_path / "m.safetensors")
    for one in (model, load_method(tmp_path / "m.safetensors")):
        lists = evaluate(one, market, ks=[5]).lists
        assert lists[0].tolist() == [others[0], seen, others[1], -1, -1]
        assert (lists[1:] == -1).all()
        assert one.remarks_ == ("59 of 60 users have no list",)


def test_names_of_files_are_methods() -> None:
    method = Method.parse("scores:mine+quota@0.4")
    assert (method.trained_name, method.settings_name) == ("scores:mine", "scores:mine")
    assert str(method.trained) == "scores:mine"
    model = build(method, {"file": "s.csv"}, seed=0)
    assert model.all_settings() == {"file": "s.csv", "sha256": "", "quota": {"share": 0.4}}
    for wrong in ("scores", "lists", "lists:mine+quota"):
        with pytest.raises(MethodError):
            Method.parse(wrong)


def test_compare_takes_scores_and_lists(
    market: Split, scored: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = "synthetic:users=60,items=80,interactions_per_user=20,seed=3"
    ease = evaluate(Ranked(Ease()).fit(market), market, ks=[10])
    log, lists = market.train, tmp_path / "lists.csv"
    rows = [
        f"{log.user_ids[user]},{log.item_ids[item]},{rank}"
        for user, own in enumerate(ease.lists)
        for rank, item in enumerate(own)
    ]
    lists.write_text("\n".join(["user,item,rank", *rows]))
    common = [
        "compare",
        "--data",
        data,
        "--seeds=1",
        "--k=10",
        "--jobs=1",
        "--out",
        str(tmp_path / "out"),
        "--json",
        str(tmp_path / "rows.json"),
    ]
    files = ["--scores", f"mine={scored}", "--lists", f"theirs={lists}"]
    assert run([*common, *files, "--methods=ease+quota@0.3,scores:mine+quota@0.3"]) == 0
    found = {
        row["method"]: row["metrics"]["ndcg@10"]["mean"]
        for row in json.loads((tmp_path / "rows.json").read_text())["rows"]
    }
    assert found["scores:mine+quota@0.3"] == found["ease+quota@0.3"]
    assert found["lists:theirs"] == pytest.approx(ease.metrics["ndcg@10"])
    # a changed file is another result
    scored.write_text(scored.read_text().replace("0.", "1.", 40))
    assert run([*common, *files, "--methods=scores:mine"]) == 0
    assert len(list((tmp_path / "out" / "models").glob("scores-mine*.safetensors"))) == 2
    capsys.readouterr()
    assert run([*common, "--methods=scores:other"]) == 2
    assert "give --scores other=FILE" in " ".join(capsys.readouterr().err.split())
    assert run([*common, "--scores", str(scored)]) == 2
    assert run([*common, "--scores", "a=nosuch.csv"]) == 1
    assert "nosuch.csv: cannot be read" in capsys.readouterr().err
