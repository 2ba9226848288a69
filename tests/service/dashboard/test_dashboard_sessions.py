"""Sessions are signed, end after twelve hours, and have tokens of their own."""

import hashlib
import hmac

import pytest

from fairhorizon.service.dashboard.sessions import Signer

SIGNER = Signer("ab" * 32)
NOW = 1_700_000_000.0


def test_a_session_is_good_for_twelve_hours() -> None:
    cookie = SIGNER.session("0123456789ab", NOW)
    assert SIGNER.key_id(cookie, NOW) == "0123456789ab"
    assert SIGNER.key_id(cookie, NOW + 12 * 3600 - 1) == "0123456789ab"
    assert SIGNER.key_id(cookie, NOW + 12 * 3600) is None


def test_the_signature_is_the_one_that_is_documented() -> None:
    content, _, signature = SIGNER.session("0123456789ab", NOW).rpartition(".")
    number, nonce, end = content.split(".")
    assert (number, int(end), len(nonce)) == ("0123456789ab", NOW + 12 * 3600, 32)
    text = f"session {content}".encode()
    assert signature == hmac.new(b"ab" * 32, text, hashlib.sha256).hexdigest()


def test_what_was_changed_is_not_ours() -> None:
    cookie = SIGNER.session("0123456789ab", NOW)
    number, nonce, end, signature = cookie.split(".")
    for other in (
        f"1123456789ab.{nonce}.{end}.{signature}",  # another key
        f"{number}.{nonce}.{int(end) + 1}.{signature}",  # a longer time
        f"{number}.{'0' * 32}.{end}.{signature}",
        f"{number}.{nonce}.{end}.{signature[:-1]}",
        f"{number}.{nonce}.{end}.",
        f"{number}.{nonce}.{end}",
        "",
        "...",
        "\u00e9.\ud800",
        SIGNER.token(cookie),
    ):
        assert SIGNER.key_id(other, NOW) is None


def test_another_database_knows_other_sessions() -> None:
    assert Signer("cd" * 32).key_id(SIGNER.session("0123456789ab", NOW), NOW) is None


def test_no_two_sessions_are_alike() -> None:
    assert SIGNER.session("0123456789ab", NOW) != SIGNER.session("0123456789ab", NOW)


def test_a_token_belongs_to_one_session() -> None:
    one, other = (SIGNER.session("0123456789ab", NOW) for _ in range(2))
    assert SIGNER.is_token(one, SIGNER.token(one))
    assert not SIGNER.is_token(other, SIGNER.token(one))
    assert not SIGNER.is_token(one, "")
    assert not SIGNER.is_token(one, SIGNER.token(one) + "0")
    assert not SIGNER.is_token("", SIGNER.token(""))  # who has no cookie has no token
    assert not Signer("cd" * 32).is_token(one, SIGNER.token(one))


@pytest.mark.parametrize("given", ["\ud800", "\u00e9" * 64, "x" * 10_000])
def test_any_text_may_be_given_as_a_token(given: str) -> None:
    assert not SIGNER.is_token("cookie", given)
