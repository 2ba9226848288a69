"""Calls that nobody would think of (benchmarks/fuzz_api.py makes more of them)."""

from pathlib import Path

import pytest

from fuzz_api import fuzzed, served

pytestmark = pytest.mark.slow

KNOWN = {"user": "c1", "item": "a1", "limit": 1, "model": 1, "job": 1, "type": "like"}


def test_no_call_is_answered_with_a_fault_of_ours(url: str, shop_run: Path) -> None:
    with served(url, shop_run) as schema:
        found = fuzzed(schema, 150, 11, KNOWN)
    assert found.failures == {}
    assert found.server_errors == 0
    assert found.calls >= 150
    assert {200, 400, 404, 422} <= set(found.statuses)  # calls of all kinds were made
