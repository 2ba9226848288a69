"""Alerts over HTTP, to a real server."""

import logging

import pytest
from listening import WITHIN, listening

from fairhorizon.errors import ConfigError
from fairhorizon.service.monitoring.alerts import Webhook, check_address

FIRST = {"Kind": "floor-missed", "Subject": "seller=x>=0.2", "State": "begun"}
SECOND = {"Kind": "limit-near", "Subject": "popular<=0.4", "State": "ended"}
AT_ONCE = (0.0, 0.0)


def test_what_fails_is_sent_again_and_what_follows_stays_behind_it() -> None:
    with listening(500) as listener:
        webhook = Webhook(listener.address, AT_ONCE)
        webhook.send(FIRST)
        webhook.send(SECOND)
        assert [listener.next() for _ in range(3)] == [FIRST, FIRST, SECOND]
        webhook.stop()
        assert listener.received.empty()


def test_it_is_given_up_after_three_tries(caplog: pytest.LogCaptureFixture) -> None:
    with listening(500, 503, 404) as listener, caplog.at_level(logging.ERROR):
        webhook = Webhook(listener.address, AT_ONCE)
        webhook.send(FIRST)
        webhook.send(SECOND)
        assert [listener.next() for _ in range(4)] == [FIRST, FIRST, FIRST, SECOND]
        webhook.stop()
        assert listener.received.empty()
    (text,) = [record.getMessage() for record in caplog.records]
    assert "could not be sent to 127.0.0.1" in text
    assert "404" in text
    assert "secret" not in text


def test_nobody_waits_for_a_server_that_does_not_answer() -> None:
    with listening() as listener:
        listener.may_answer.clear()
        webhook = Webhook(listener.address, AT_ONCE)
        for _ in range(3):
            webhook.send(FIRST)  # returns, although nothing was answered
        assert listener.next() == FIRST
        assert listener.received.empty()
        listener.may_answer.set()
        assert [listener.next(), listener.next()] == [FIRST, FIRST]
        webhook.stop()


def test_an_alert_goes_nowhere_else() -> None:
    with listening(302, 302, 302) as listener:
        webhook = Webhook(listener.address, AT_ONCE)
        webhook.send(FIRST)
        assert [listener.next() for _ in range(3)] == [FIRST] * 3
        webhook.stop()
        assert listener.received.empty()


def test_a_server_that_is_not_there_does_no_harm(caplog: pytest.LogCaptureFixture) -> None:
    with listening() as listener:
        address = listener.address
    with caplog.at_level(logging.ERROR):
        webhook = Webhook(address, AT_ONCE)
        webhook.send(FIRST)
        webhook.stop()
        assert webhook._thread is not None
        webhook._thread.join(WITHIN)
    assert "could not be sent" in caplog.text


@pytest.mark.parametrize(
    "address", ["ftp://host/x", "file:///etc/passwd", "https://", "host/x", "http://[::1", "//h"]
)
def test_other_addresses_are_refused(address: str, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ConfigError, match="begins with http:// or https://"):
        check_address(address)
    with caplog.at_level(logging.ERROR):
        webhook = Webhook(address)
    webhook.send(FIRST)
    assert "alerts cannot be sent" in caplog.text
    assert webhook._thread is None


def test_the_host_alone_is_no_secret() -> None:
    assert check_address("https://hooks.example:8443/services/SECRET") == "hooks.example"
