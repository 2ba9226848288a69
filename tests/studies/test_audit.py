"""Audits of a log small enough to compute every number by hand."""

import math
from pathlib import Path

import polars as pl
import pytest

from fairhorizon.data.recommendations import ListColumns, Recommendations, read_recommendations
from fairhorizon.datasets import Dataset, DataSpec
from fairhorizon.errors import ConfigError, DataError
from fairhorizon.report.audit import facts, finding, metrics_shown
from fairhorizon.studies.audit import AuditResult, audit, most_changed

# a trains on 1 2 3, validates on 4, tests on 5; b: 1 2 4, 3, 6; c: 1, 3, and no test item.
# Training counts of items 1 to 6: 3 2 1 1 0 0, so that a fifth of six items, G0, is item 1.
LOG = """user,item,timestamp
a,1,1
a,2,2
a,3,3
a,4,4
a,5,5
b,1,1
b,2,2
b,4,3
b,3,4
b,6,5
c,1,1
c,3,2
"""


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    (tmp_path / "log.csv").write_text(LOG)
    return DataSpec(source=str(tmp_path / "log.csv")).open()


def read(
    dataset: Dataset, tmp_path: Path, text: str, *, ignore_unknown: bool = False
) -> Recommendations:
    (tmp_path / "lists.csv").write_text(text)
    return read_recommendations(tmp_path / "lists.csv", dataset.log, ignore_unknown=ignore_unknown)


def audited(dataset: Dataset, tmp_path: Path, text: str, alpha_prime: float = 1.0) -> AuditResult:
    shown = read(dataset, tmp_path, text)
    return audit(dataset, shown, ks=(1, 2), alpha_prime=alpha_prime)


def test_lists_by_hand(dataset: Dataset, tmp_path: Path) -> None:
    # ranks neither start at 1 nor follow each other: a sees 6 5, b sees 5 6
    result = audited(dataset, tmp_path, "rank,item,user\n7,5,a\n9,6,b\n3,6,a\n-1.5,5,b\n")
    second = 1 / math.log2(3)
    expected = {
        "recall@1": 0,
        "recall@2": 1,
        "f1@2": 2 / 3,
        "ndcg@1": 0,
        "ndcg@2": second,
        "gini@2": 2 / 3,  # counts 0 0 0 0 2 2
        "popularity_rate@2": 0,
        "coverage@2": 1 / 3,
        "exposure_ratio@2": 0,
        "demographic_parity_gap@2": -4 / 5,
        "exact_k_violation@2": 0,
    }
    for name, value in expected.items():
        assert result.row.metrics[name] == pytest.approx(value, abs=1e-12), name
    assert not [name for name in result.row.metrics if name.endswith("@all")]
    assert result.row.protocol == "standard"
    counts = result.counts
    assert (counts.kind, counts.order) == ("lists", "rank")
    assert (counts.users, counts.users_without_list, counts.users_measured) == (3, 1, 2)
    assert (counts.shown, counts.from_history) == (4, 0)
    assert counts.shorter_lists == {1: 0, 2: 0}
    assert result.exposure.tolist() == [0, 0, 0, 0, 2, 2]


def test_the_users_own_history_makes_it_the_papers_protocol(
    dataset: Dataset, tmp_path: Path
) -> None:
    # b took 1 in training and 3, its validation item, before the test item
    text = "user,item\na,6\na,5\nb,1\nb,3\nb,6\nc,2\n"
    result = audited(dataset, tmp_path, text, alpha_prime=0.4)
    assert result.row.protocol == "paper"
    assert result.counts.order == "place in the file"
    assert (result.counts.from_history, result.counts.from_history_share) == (2, 2 / 6)
    assert result.counts.shorter_lists == {1: 0, 2: 1}
    assert result.counts.users_measured == 2  # c has a list but no test item
    assert result.row.metrics["recall@2"] == 1 / 2
    assert result.row.metrics["popularity_rate@2"] == 1 / 5
    assert result.row.metrics["exact_k_violation@1"] == 1 / 3
    assert result.row.metrics["exact_k_violation@2"] == 1 / 3  # 1 of 2 is more than 0.4 of 2


def test_an_impression_log_counts_every_impression(dataset: Dataset, tmp_path: Path) -> None:
    # a sees 1 1 5, b sees 6; the rows are not in the order of time
    text = "time,user,item\n3,a,5\n2,a,1\n1,a,1\n1,b,6\n"
    result = audited(dataset, tmp_path, text)
    assert (result.counts.kind, result.counts.order) == ("impressions", "time")
    expected = {
        "popularity_rate@1": 1 / 2,
        "popularity_rate@2": 2 / 3,  # 1 1 and 6
        "coverage@2": 2 / 6,
        "recall@1": 1 / 2,
        "recall@2": 1,  # the distinct 1 5 and 6
        "ndcg@2": (1 / math.log2(3) + 1) / 2,
        "popularity_rate@all": 2 / 4,
        "coverage@all": 3 / 6,
        "gini@all": 7 / 12,  # counts 0 0 0 1 1 2
        "exposure_ratio@all": 1,
        "demographic_parity_gap@all": 2 - 2 / 5,
    }
    for name, value in expected.items():
        assert result.row.metrics[name] == pytest.approx(value, abs=1e-12), name
    assert (result.counts.shown, result.counts.from_history) == (4, 2)
    assert result.exposure.tolist() == [2, 0, 0, 0, 1, 1]


def test_ranks_that_come_again_at_other_times_are_an_impression_log(
    dataset: Dataset, tmp_path: Path
) -> None:
    text = "user,rank,time,item\na,2,20,5\na,1,20,6\na,2,10,6\na,1,10,5\n"
    shown = read(dataset, tmp_path, text)
    assert (shown.is_log, shown.order) == (True, "time and rank")
    assert (shown.items + 1).tolist() == [5, 6, 6, 5]
    assert (shown.distinct().first(3) + 1).tolist() == [[5, 6, 0], [0, 0, 0], [0, 0, 0]]
    once = read(dataset, tmp_path, "user,rank,time,item\na,2,1,5\na,1,2,6\n")
    assert (once.is_log, once.order) == (False, "rank")
    assert (once.items + 1).tolist() == [6, 5]


def test_groups_and_items_against_the_training_log(dataset: Dataset, tmp_path: Path) -> None:
    result = audited(dataset, tmp_path, "user,item\na,5\na,6\nb,5\nb,1\n")
    popular, tail = result.groups
    assert (popular.group, popular.items, popular.per_item) == ("G0", 1, 1)
    assert (tail.group, tail.items, tail.per_item) == ("G1", 5, 3 / 5)
    assert popular.of_catalogue == pytest.approx(1 / 6)
    assert (popular.from_training, popular.of_exposure) == pytest.approx((3 / 7, 1 / 4))
    assert (tail.from_training, tail.of_exposure) == pytest.approx((4 / 7, 3 / 4))
    # shares of exposure 1/4 0 0 0 1/2 1/4, of training 3/7 2/7 1/7 1/7 0 0
    over, under = most_changed(result.exposure, dataset, n=3)
    assert (over + 1).tolist() == [5, 6]
    assert (under + 1).tolist() == [2, 1, 3]
    first = result.most_over[0]
    assert (first.item, first.group, first.shown) == ("5", "G1", 2)
    assert (first.of_exposure, first.from_training, first.change) == (1 / 2, 0, 1 / 2)
    assert [one.item for one in result.most_under] == ["2", "1", "3", "4"]
    assert result.most_under[1].group == "G0"


def test_ids_match_whatever_their_type(dataset: Dataset, tmp_path: Path) -> None:
    frame = pl.DataFrame({"user": ["a", "b"], "item": [5.0, 6.0], "position": [1, 1]})
    frame.write_parquet(tmp_path / "lists.parquet")
    shown = read_recommendations(tmp_path / "lists.parquet", dataset.log)
    assert (shown.items + 1).tolist() == [5, 6]
    assert shown.order == "rank"


def test_columns_can_be_named_or_numbered(dataset: Dataset, tmp_path: Path) -> None:
    (tmp_path / "lists.tsv").write_text("5\t2\ta\n6\t1\ta\n")
    columns = ListColumns(user=2, item=0, rank=1)
    shown = read_recommendations(tmp_path / "lists.tsv", dataset.log, columns)
    assert (shown.items + 1).tolist() == [6, 5]
    # without header only user and item are known by their place: a third number may be a score
    (tmp_path / "lists.tsv").write_text("a\t5\t0.9\na\t6\t0.1\n")
    shown = read_recommendations(tmp_path / "lists.tsv", dataset.log)
    assert (shown.items + 1).tolist() == [5, 6]
    assert shown.order == "place in the file"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("user,item\na,5\nz,5\n", "line 3: user 'z' is not in log.csv (1 of 2 rows have ids"),
        ("user,item\na,5\na,7\n", "line 3: item '7' is not in log.csv"),
        ("user,item\na,05\n", "line 2: item '05' is not in log.csv"),
        ("user,item\na,5\n\na,\n", "line 4: item is missing (fill the cell"),
        ("user,item,rank\na,5,1\na,6,top\n", "line 3: rank 'top' is not a number"),
        ("user,item,rank\na,5,1\na,6,1.0\n", "line 3: user a has rank 1 twice (drop one"),
        ("user,item,rank\na,5,1\na,5,2\n", "line 3: item 5 is in the list of user a twice"),
        ("user,item,time\na,5,soon\n", "line 2: time 'soon' is not a number"),
        (
            "user,item,rank,time\na,5,1,1\na,6,1,1\n",
            "line 3: user a has rank 1 twice (drop one of the rows)",
        ),
        ("wer,item\na,5\n", "no column looks like the user (the columns are 'wer', 'item': name"),
        ("user,was\na,5\n", "no column looks like the item"),
        ("user,item\n", "there is a header but no rows"),
        ("", "the file is empty"),
    ],
)
def test_a_fault_names_file_and_line(
    dataset: Dataset, tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(DataError) as caught:
        read(dataset, tmp_path, text)
    assert str(caught.value).startswith(str(tmp_path / "lists.csv"))
    assert message in str(caught.value)


def odd(result: AuditResult) -> dict[str, int]:
    names = ("duplicate_rows", "negative_ranks", "skipped_ranks", "gapped_lists")
    found = {name: getattr(result.counts, name) for name in names}
    assert {name: result.counts.to_json()[name] for name in names} == found
    return {name: number for name, number in found.items() if number}


@pytest.mark.parametrize(
    ("text", "lists", "expected"),
    [
        # the same row again is one row, however often
        ("user,item\na,5\nb,5\na,5\na,6\na,5\n", {"a": "56", "b": "5"}, {"duplicate_rows": 2}),
        ("user,item,rank\na,5,2\na,6,1\na,5,2.0\n", {"a": "65"}, {"duplicate_rows": 1}),
        # with times, too: they are still lists, and not a log because of the repeat
        ("user,item,rank,time\na,5,1,7\na,5,1,7\n", {"a": "5"}, {"duplicate_rows": 1}),
        # negative ranks are ranks
        ("user,item,rank\na,5,1\na,6,-1\nb,6,-2\n", {"a": "65", "b": "6"}, {"negative_ranks": 2}),
        # a lacks 2 and 3, b lacks 1; c lacks nothing
        (
            "user,item,rank\na,5,1\na,6,4\nb,5,2\nc,5,1\nc,6,2\n",
            {"a": "56", "b": "5", "c": "56"},
            {"skipped_ranks": 3, "gapped_lists": 2},
        ),
        # from 0, b lacks 0
        (
            "user,item,rank\na,5,0\na,6,1\nb,5,1\n",
            {"a": "56", "b": "5"},
            {"skipped_ranks": 1, "gapped_lists": 1},
        ),
        # a repeat fills no place, and a rank below 0 has none
        (
            "user,item,rank\na,5,1\na,5,1\na,6,3\na,4,-1\n",
            {"a": "456"},
            {
                **{"duplicate_rows": 1, "negative_ranks": 1},
                **{"skipped_ranks": 1, "gapped_lists": 1},
            },
        ),
        ("user,item,rank\na,5,1.5\na,6,9.25\n", {"a": "56"}, {}),  # scores
        ("user,item,rank\na,5,1\na,6,2\nb,5,1\n", {"a": "56", "b": "5"}, {}),
    ],
)
def test_odd_rows_are_counted_and_read_in_order(
    dataset: Dataset, tmp_path: Path, text: str, lists: dict[str, str], expected: dict[str, int]
) -> None:
    shown = read(dataset, tmp_path, text)
    assert not shown.is_log
    read_as = {
        str(dataset.log.user_ids[user]): "".join(
            str(dataset.log.item_ids[item]) for item in shown.items[shown.users == user]
        )
        for user in sorted(set(shown.users.tolist()))
    }
    assert read_as == lists
    assert odd(audit(dataset, shown, ks=(1, 2))) == expected


def test_in_a_log_by_time_a_repeat_is_a_showing_and_counted(
    dataset: Dataset, tmp_path: Path
) -> None:
    result = audited(dataset, tmp_path, "user,item,time\na,5,1\na,5,1\na,5,2\n")
    assert result.counts.shown == 3
    assert odd(result) == {"duplicate_rows": 1}
    assert (
        "duplicate rows",
        "1, the same as an earlier one; each is a showing, as times may be too coarse to tell two "
        "apart",
    ) in facts(result)
    # pages of a log have ranks: the same row again is no second showing, and places may be missing
    pages = "user,item,rank,time\na,5,1,1\na,5,1,1\na,6,3,1\na,5,1,2\n"
    result = audited(dataset, tmp_path, pages)
    assert (result.counts.kind, result.counts.shown) == ("impressions", 3)
    assert odd(result) == {"duplicate_rows": 1}


def test_what_is_odd_is_said_once_with_its_number(dataset: Dataset, tmp_path: Path) -> None:
    text = "user,item,rank\na,5,1\na,5,1\na,6,3\na,4,-1\n"
    assert facts(audited(dataset, tmp_path, text))[-3:] == [
        ("duplicate rows", "1, the same as an earlier one; left out"),
        ("negative ranks", "1, read as they are, the smallest on top"),
        ("skipped ranks", "1, in 1 lists; the next item takes the place"),
    ]
    plain = facts(audited(dataset, tmp_path, "user,item,rank\na,5,1\na,6,2\n"))
    assert not {"duplicate rows", "negative ranks", "skipped ranks"} & {name for name, _ in plain}


def test_a_rank_is_not_skipped_because_its_item_is_unknown(
    dataset: Dataset, tmp_path: Path
) -> None:
    text = "user,item,rank\na,5,1\na,9,2\na,6,3\nz,5,4\n"
    shown = read(dataset, tmp_path, text, ignore_unknown=True)
    assert odd(audit(dataset, shown, ks=(2,))) == {}


def test_unknown_rows_can_be_left_out(dataset: Dataset, tmp_path: Path) -> None:
    text = "user,item,rank\nz,5,1\na,9,1\na,6,2\na,5,3\n"
    shown = read(dataset, tmp_path, text, ignore_unknown=True)
    assert (shown.items + 1).tolist() == [6, 5]
    assert audit(dataset, shown, ks=(2,)).counts.unknown_rows == 2
    with pytest.raises(DataError, match="line 6: user a has rank 2 twice"):
        read(dataset, tmp_path, f"{text}a,3,2\n", ignore_unknown=True)
    with pytest.raises(DataError, match=r"no row has a user and an item of log\.csv"):
        read(dataset, tmp_path, "user,item\nz,5\na,9\n", ignore_unknown=True)


@pytest.mark.parametrize("alpha_prime", [-0.1, 1.1, math.nan])
def test_a_limit_is_a_share(dataset: Dataset, tmp_path: Path, alpha_prime: float) -> None:
    with pytest.raises(ConfigError, match="is not a share"):
        audited(dataset, tmp_path, "user,item\na,5\n", alpha_prime)


def test_lists_without_any_hit_say_so(dataset: Dataset, tmp_path: Path) -> None:
    text = "2 users with a list and test items"
    hit = dict(facts(audited(dataset, tmp_path, "user,item,rank\na,5,1\nb,5,1\n")))
    assert hit["counted for accuracy"] == text
    none = audited(dataset, tmp_path, "user,item,rank\na,6,1\nb,5,1\n")
    assert dict(facts(none))["counted for accuracy"] == "nobody"
    assert metrics_shown(none) == ("gini", "popularity_rate")
    assert "Accuracy is left out: no list shows anything that its user took" in finding(none, 5)
