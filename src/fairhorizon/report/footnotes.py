"""Marks behind the name of a method, and the notes that explain them."""

from collections.abc import Sequence

from fairhorizon.studies.rows import OverSeeds

LIMIT_MISSED = " †"
LIMIT_MISSED_NOTE = (
    "† under some seed no evaluated round of the training kept the limit: the policy of its last "
    "round serves."
)


def marked(row: OverSeeds) -> str:
    """The method of a row, marked if a training of it did not keep its limit."""
    return row.method + (LIMIT_MISSED if row.limit_missed else "")


def mark_notes(rows: Sequence[OverSeeds]) -> list[str]:
    """Notes on the marks that are in use."""
    return [LIMIT_MISSED_NOTE] if any(row.limit_missed for row in rows) else []
