"""Tables and the chart of an audit: ranks in bands, providers, verdicts in line."""

import numpy as np
from specs import check_schema, line_of

from fairhorizon.evaluation.short_term import EvaluationRow
from fairhorizon.limits.measured import Verdict, verdict_lines
from fairhorizon.report import audit as audit_report
from fairhorizon.report.charts import GREY
from fairhorizon.studies.audit import (
    AuditCounts,
    AuditResult,
    ByRank,
    ProviderExposure,
    RankExposure,
)
from fairhorizon.vocabulary import Mode, Protocol

# 4 lists, of 1, 3, 5 and 7 items
RANKS = ByRank(
    (4, 3, 3, 2, 2, 1, 1),
    (
        RankExposure("popular", 9 / 16, (1.0, 1.0, 2 / 3, 0.0, 0.0, 0.0, 0.0)),
        RankExposure("other", 7 / 16, (0.0, 0.0, 1 / 3, 1.0, 1.0, 1.0, 1.0)),
    ),
)


def test_ranks_in_bands_that_lists_have() -> None:
    grid = audit_report.ranks_grid(RANKS)
    bands = ["Rank 1", "Rank 2-3", "Rank 4-5", "Rank 6-7"]
    assert list(grid.headings) == ["Group", *bands, "All"]
    first, second = [[cell.text for cell in line] for line in grid.lines]
    assert first == ["popular", "100.0", "83.3", "0.0", "0.0", "56.2"]
    assert second == ["other", "0.0", "16.7", "100.0", "100.0", "43.8"]


def test_the_chart_has_every_rank() -> None:
    chart = audit_report.ranks_chart(RANKS)
    check_schema(chart)
    (panel,) = chart.panels
    assert line_of(panel, "popular") == [
        *((1, 1.0), (2, 1.0), (3, 0.66667)),
        *((rank, 0.0) for rank in range(4, 8)),
    ]
    assert chart.styles["other"].colour == GREY


def test_of_many_groups_the_most_shown_are_drawn() -> None:
    many = tuple(RankExposure(f"seller=s{n}", n / 100, (n / 100,)) for n in range(20))
    by_rank = ByRank((10,), (*RANKS.groups, *many))
    names = [group.group for group in audit_report.shown_groups(by_rank)]
    assert names == ["popular", "other", *(f"seller=s{n}" for n in range(14, 20))]
    assert "14 further groups" in audit_report.ranks_table_section(by_rank).note


def test_providers_and_verdicts() -> None:
    row = EvaluationRow("log", "audit", Protocol.STANDARD, Mode.ONE_SHOT, None, 1.0, {})
    counts = AuditCounts("lists", "rank", 1, 0, 1, 1, 0, {}, 0)
    nothing = np.zeros(2, dtype=np.int64)
    providers = (
        ProviderExposure("B", 2, 0, 0.0, 3 / 7, 1 / 3, None),
        ProviderExposure("A", 2, 1_300, 1 / 2, 5 / 7, 1 / 3, 4),
        ProviderExposure("D", 1, 900, 1 / 3, 0.0, 1 / 6, 1),
    )
    result = AuditResult(
        *(row, counts, nothing, nothing, nothing > 0, (), (), ()),
        verdicts=(Verdict("gini<=0.8", True, "kept: a"), Verdict("popular<=0.4", False, "b")),
        provider_column="seller",
        providers=providers,
    )
    assert verdict_lines(result.verdicts) == ["gini<=0.8     kept: a", "popular<=0.4  b"]
    line = "3; 2 are shown less than their share of the training log, 1 never"
    assert audit_report.providers_line(result) == line
    lines = audit_report.providers_grid(providers, "seller").lines
    assert [[cell.text for cell in line] for line in lines] == [
        ["B", "2", "0", "0.00", "42.86", "33.33", "0.00", "-"],
        ["A", "2", "1,300", "50.00", "71.43", "33.33", "0.70", "4"],
        ["D", "1", "900", "33.33", "0.00", "16.67", "-", "1"],
    ]
    content = result.to_json()
    assert next(iter(content)) == "verdicts"
    assert content["verdicts"][0] == {
        **{"limit": "gini<=0.8", "kept": True, "verdict": "kept: a"},
        **{"limits": 1, "at_the_bottom": False},
    }
    assert content["providers"][0]["ratio"] == 0
    assert content["providers"][2]["ratio"] is None
    assert "by_rank" not in content
