"""Times as ISO text: the same seconds as by the standard library, text by text."""

from datetime import UTC, datetime

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairhorizon.data.columns import Origin, to_times
from fairhorizon.errors import DataError

MOMENTS = st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9998, 12, 31))
FORMS = (
    lambda moment: moment.date().isoformat(),
    lambda moment: moment.isoformat(),
    lambda moment: moment.isoformat(sep=" ", timespec="milliseconds"),
    lambda moment: moment.isoformat(timespec="seconds") + "Z",
    lambda moment: moment.isoformat(sep=" ", timespec="minutes"),
    lambda moment: moment.isoformat() + "+00:00",
    lambda moment: f" {moment.isoformat()}-03:30 ",
)


def seconds(text: str) -> float:
    moment = datetime.fromisoformat(text.strip())
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (aware - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()


@given(st.lists(st.tuples(MOMENTS, st.sampled_from(FORMS)), min_size=1, max_size=20))
def test_all_forms_are_as_by_the_standard_library(moments):
    texts = [form(moment) for moment, form in moments]
    assert to_times(pl.Series(texts), "time", Origin()).tolist() == [seconds(t) for t in texts]


@pytest.mark.parametrize(
    "wrong", ["2024-02-30", "2024-5-31", "0000-01-01", "2024-05-31T25:00:00", "12", "2024-05-31T1"]
)
def test_what_is_no_date_is_named_with_its_line(wrong):
    texts = pl.Series(["2024-05-31", "2024-05-31T12:00:00Z", wrong, "never"])
    with pytest.raises(DataError, match=f"log.csv line 4: time '{wrong}' is not a number"):
        to_times(texts, "time", Origin("log.csv", first_line=2))
