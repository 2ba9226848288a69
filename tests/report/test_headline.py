import numpy as np
import pytest

from fairhorizon.evaluation.short_term import EvaluationRow
from fairhorizon.report.audit import finding as audit_finding
from fairhorizon.report.limits import Kept, limits_sentence, listed
from fairhorizon.studies.audit import AuditCounts, AuditResult
from fairhorizon.vocabulary import POPULAR, Mode, Protocol


def row(limit, share):
    metrics = {"ndcg@20": 0.25, "gini@20": 0.5, "popularity_rate@20": share}
    metrics["exact_k_violation@20"] = 0.125
    return EvaluationRow("data", "fcpo", Protocol.STANDARD, Mode.ONE_SHOT, 0, limit, metrics)


def test_a_share_above_its_limit_by_a_rounding_is_kept():
    assert Kept("a", 0.4, 0.4004).is_kept
    assert not Kept("a", 0.4, 0.401).is_kept
    assert not Kept("a", 0.4, None).is_kept


def test_one_limit_and_many():
    assert limits_sentence([Kept("a", 0.4, 0.31)], POPULAR) == (
        "a kept its limit: 31.00 % popular items, at most 40 %."
    )
    broken = [Kept(name, 0.4, 0.5) for name in "abcde"]
    assert limits_sentence([*broken, Kept("f", 0.4, 0.2), Kept("g", 1.0, 0.9)], "x = y") == (
        "1 of 6 limits on items with x = y kept; not kept by a (50.00 %, at most 40 %), "
        "b (50.00 %, at most 40 %), c (50.00 %, at most 40 %) and 2 more."
    )
    assert listed(["a"]) == "a"
    assert listed(["a", "b", "c"]) == "a, b and c"


@pytest.mark.parametrize(
    ("limit", "share", "words"),
    [
        (1.0, 0.31, "No limit was given."),
        (None, 0.31, "No limit was given."),
        (0.4, 0.31, "The limit of 40 % was kept over all lists; 12.50 % of single lists are over"),
        (0.3, 0.31, "The limit of 30 % was not kept over all lists;"),
    ],
)
def test_an_audit_opens_with_the_share_and_the_limit(limit, share, words):
    counts = AuditCounts("lists", "rank", 1, 0, 1, 1, 0, {}, 0)
    nothing = np.zeros(2, dtype=np.int64)
    result = AuditResult(row(limit, share), counts, nothing, nothing, nothing > 0, (), (), ())
    found = audit_finding(result, 20)
    assert found.startswith(
        "31.00 % of the first 20 places show popular items; the Gini index of exposure is 50.00 %."
    )
    assert words in found
