"""The server's address: clients get its password, people never see it, whatever characters it has."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.asyncio.connection import parse_url

from broker.address import PASSWORD_FILE_VARIABLE, for_client, has_password, with_password, without_password
from broker.errors import Misconfigured
from scheduler.celery_fleet import celery_url

passwords = st.text(st.characters(min_codepoint=33, max_codepoint=0x2FF), min_size=6).map(lambda tail: "S3" + tail)


@given(passwords, st.sampled_from(["redis", "rediss"]), st.sampled_from(["", "me"]))
def test_a_password_is_never_shown_be_it_quoted_or_not(password: str, scheme: str, user: str) -> None:
    for written in (password, quote(password, safe="")):
        url = f"{scheme}://{user}:{written}@host:6379/0"
        assert written not in without_password(url)
        assert has_password(url)
        try:
            assert for_client(url) == url
        except Misconfigured as refused:
            if written in str(refused):
                raise AssertionError("the refusal tells the password") from None


@given(passwords)
def test_a_client_gets_the_password_as_it_was(password: str) -> None:
    url = with_password("rediss://me@host:6380/0?ssl_ca_certs=/ca.pem", password)
    found = dict(parse_url(url))
    assert (found["username"], found["password"], found["host"]) == ("me", password, "host")
    assert dict(parse_url(with_password("unix:///run/redis.sock", password)))["password"] == password


def test_a_password_file_is_read_for_clients_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "password").write_text("se/same\n")
    monkeypatch.setenv(PASSWORD_FILE_VARIABLE, str(tmp_path / "password"))
    assert for_client("redis://me@host:1/0") == "redis://me:se%2Fsame@host:1/0"
    assert for_client("redis://me:own@host:1/0") == "redis://me:own@host:1/0"
    monkeypatch.setenv(PASSWORD_FILE_VARIABLE, str(tmp_path / "nothing"))
    with pytest.raises(Misconfigured, match=r"nothing cannot be read \(FileNotFoundError\)"):
        for_client("redis://me@host:1/0")


@pytest.mark.parametrize(
    "url", ["redis://:se/same@h:1/0", "redis://:s[esame@h", "http://:sesame@h", "redis://h:port/0", "x"]
)
def test_an_address_that_cannot_be_read_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(Misconfigured, match="cannot be read") as refused:
        for_client(url)
    assert "same" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("redis://h/0?ssl_ca_certs=/ca.pem", "redis:// knows db, username, password$"),
        ("rediss://:sesame@h/0?ssl_ca_cert=/ca.pem", "says 'ssl_ca_cert'.* ssl_ca_certs"),
        ("rediss://:sesame@h/0?ssl_ca_certs=/nowhere/ca.pem", "names /nowhere/ca.pem, which this account cannot read"),
    ],
)
def test_what_stands_behind_an_address_is_checked(url: str, told: str) -> None:
    with pytest.raises(Misconfigured, match=told) as refused:
        for_client(url)
    assert "sesame" not in str(refused.value)


def test_celery_checks_certificates_unless_the_address_says_otherwise() -> None:
    assert "ssl_cert_reqs=CERT_REQUIRED" in celery_url("rediss://h:1/0")
    assert celery_url("rediss://h:1/0?ssl_ca_certs=/ca.pem&ssl_cert_reqs=none").endswith(
        "ssl_cert_reqs=CERT_NONE&ssl_ca_certs=%2Fca.pem"
    )
    assert celery_url("redis://h:1/0") == "redis://h:1/0"
    assert celery_url("unix:///a/b") == "redis+socket:///a/b"
