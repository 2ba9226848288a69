"""Requests one after the other: the limit holds after each of them."""

from concurrent.futures import ThreadPoolExecutor

import pytest

import fairhorizon as fh
from fairhorizon.errors import ConfigError
from fairhorizon.limits.groups import popular_group


@pytest.fixture
def popular(shop):
    log = shop.log()
    return set(log.item_ids[popular_group(log.item_counts())].tolist())


def test_the_limit_holds_after_every_request(model, popular):
    server, shown, of_group = model.server(), 0, 0
    for number in range(50):
        k = 3 + number % 5
        if number % 7 == 0:
            lists = server.recommend("guest", k, history=["a1", "a7"])
        else:
            lists = server.recommend(f"c{number % 40}", k, exclude=["a2"])
        assert lists.height == k
        assert "a2" not in set(lists["item"]) or number % 7 == 0
        shown += lists.height
        of_group += lists["item"].is_in(popular).sum()
        assert of_group <= 0.3 * shown + 1e-9
    assert (server.guard.shown, server.guard.sensitive) == (shown, of_group)
    assert of_group > 0.15 * shown  # and the limit is used


def test_two_servers_count_for_themselves(model):
    one, two = model.server(), model.server()
    one.recommend("c1", 5)
    assert two.guard is None
    assert one.guard.shown == 5


def test_requests_from_several_threads(model, popular):
    server = model.server()
    with ThreadPoolExecutor(4) as threads:
        lists = list(threads.map(lambda n: server.recommend(f"c{n}", 6), range(40)))
    items = [item for some in lists for item in some["item"]]
    assert server.guard.shown == len(items) == 240
    assert sum(item in popular for item in items) == server.guard.sensitive <= 0.3 * 240


def test_methods_that_serve_all_together_say_so(shop):
    with pytest.raises(ConfigError, match="ease does not serve one request after the other"):
        fh.fit(shop.log(), "ease").server()
