"""A look at a server that is silent, or refuses, is one message that says which and shows no password."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker import embedded_server
from broker.errors import Misconfigured, Unavailable
from deploy.asking import asking, looking_client
from deploy.redis_command import ask


def test_a_server_that_is_silent_is_said_to_be_without_its_password() -> None:
    url = "redis://:secret@127.0.0.1:1/0"
    with pytest.raises(Unavailable, match="does not answer within 5 s") as caught, asking(url):
        looking_client(url).ping()
    assert "secret" not in str(caught.value)


def test_a_server_that_refuses_is_not_said_to_be_silent(tmp_path: Path) -> None:
    with embedded_server.serving(tmp_path / "redis") as url:
        client = looking_client(url)
        client.set("key", "text")
        with pytest.raises(Unavailable, match=r"refuses what it was asked .*WRONGTYPE"), asking(url):
            client.hgetall("key")
        client.config_set("requirepass", "secret")
        with pytest.raises(Unavailable, match=r"refuses what it was asked .*AuthenticationError"), asking(url):
            looking_client(url).ping()
        client.config_set("requirepass", "")
        client.close()
        with pytest.raises(Misconfigured, match=r"refused HGETALL key: WRONGTYPE .*; correct the command"):
            ask(url, ["HGETALL", "key"])
