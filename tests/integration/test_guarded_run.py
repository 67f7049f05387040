"""A whole run over TLS with client certificates, under the account that operations names, its password in a file:
everything works, the account lacks no right, and the password is nowhere to be seen.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import pytest
import redis
from redis.exceptions import NoPermissionError, ResponseError

from broker.address import PASSWORD_FILE_VARIABLE, for_client, with_password
from broker.errors import Misconfigured, Unavailable
from broker.redis_broker import RedisBroker
from broker.settings import URL_VARIABLE
from deploy.slot_crew import fleet_of
from tests.integration.guarded_server import PASSWORD, GuardedServer, guarded_server
from tests.integration.test_launcher import Launched, left_over, made, until
from tests.integration.test_slots_run import BRISK

__all__ = ["made"]

ROOT = Path(__file__).parents[2]
OPERATIONS = ROOT / "docs" / "operations.md"
ACCOUNTS = ROOT / "deploy" / "images" / "redis-accounts.acl"


def accounts() -> str:
    """The shipped file, with our password."""
    return ACCOUNTS.read_text().replace("#SHA256", f"#{sha256(PASSWORD.encode()).hexdigest()}")


def exports(server: GuardedServer) -> dict[str, str]:
    """The variables as operations sets them, for this server."""
    lines = re.findall(r"^export (TIDEMILL_BROKER_(?:URL|PASSWORD_FILE))=(.*)$", OPERATIONS.read_text(), re.MULTILINE)
    told = {name: value.strip('"') for name, value in lines if "/etc/tidemill" in value}
    place = {"HOST:6380": f"localhost:{server.port}", "/etc/tidemill": str(server.folder)}
    for sign, real in place.items():
        told = {name: value.replace(sign, real) for name, value in told.items()}
    assert told == {URL_VARIABLE: server.url, PASSWORD_FILE_VARIABLE: str(server.password_file)}
    return told


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedServer]:
    with guarded_server(tmp_path_factory.mktemp("guarded") / "server", accounts()) as running:
        yield running


class Commands:
    """Commands beside the run, and everything they say."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder, self.environment, self.said = folder, environment, ""

    def type(self, *words: str, code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", *words],
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        self.said += done.stdout + done.stderr
        assert done.returncode == code, (words, done.stdout, done.stderr)
        return done.stdout

    def tidemill(self, *words: str, code: int = 0) -> str:
        return self.type("deploy.cli", *words, code=code)

    def celery(self, *words: str) -> str:
        return self.type("celery", "-A", "scheduler.slots", *words)


def shown_by_the_system() -> bytes:
    """What a list of processes can show, environments included."""
    found = b""
    for process in Path("/proc").glob("[0-9]*"):
        if int(process.name) != os.getpid():
            for what in ("cmdline", "environ"):
                try:
                    found += (process / what).read_bytes()
                except OSError:
                    continue
    return found


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_a_run_over_tls_with_few_rights_keeps_its_password(made: Callable[..., Path], server: GuardedServer) -> None:
    folder = made("scheduler.slots=2", *BRISK, "train.options={pace_s=0.1}", "run.steps=100000")
    given = exports(server)
    beside = Commands(folder, {**given, "TIDEMILL_RUNS": str(folder.parent), "TIDEMILL_FLEET": fleet_of(folder.name)})
    run = Launched(folder, **given)
    run.reach(2, within_s=90)
    look_around(beside)
    listed = shown_by_the_system()
    run.interrupt()
    assert run.end(within_s=60) == 130, run.text()
    beside.tidemill("audit")
    assert lacking(server) == [], "rights that the account lacks"
    hidden = (PASSWORD, for_client(with_password(server.url, PASSWORD)).split("@")[0].rpartition(":")[2])
    assert server.url.encode() in listed
    for secret in hidden:
        assert secret not in run.text() + beside.said
        assert secret.encode() not in listed
        assert [path for path in folder.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()] == []
        assert secret not in everything_on(server)
    until(lambda: left_over(folder) == [], 10)


def look_around(beside: Commands) -> None:
    """What people type while a run lives."""
    for view in ("open", "ledger", "weights", "dead", "decisions"):
        beside.tidemill("inspect", view, "--json")
    for words in (("status",), ("slots",), ("report",), ("doctor",)):
        beside.tidemill(*words)
    assert "rediss://" in beside.tidemill("slots", "env")
    assert "train.admitted" in beside.tidemill("redis", "HGETALL", "tm:{}:counts")
    beside.tidemill("redis", "XINFO", "GROUPS", "tm:{}:prompts")
    beside.tidemill("redis", "XPENDING", "tm:{}:prompts", "rollout")
    beside.tidemill("slots", "move", "slot-1", "rollout")
    assert "2 nodes online" in beside.celery("status")
    beside.celery("inspect", "slot_status")
    task = beside.celery("call", "tidemill.versions").strip()
    until(lambda: "versions/" in beside.celery("result", task), 30)


def lacking(server: GuardedServer) -> list[tuple[str, str, str]]:
    """What the server refused the account for want of a right."""
    with server.overseer() as client:
        told = cast("list[dict[str, Any]]", client.acl_log())
    return [(one["reason"], one["object"], one["context"]) for one in told if one["reason"] != "auth"]


def everything_on(server: GuardedServer) -> str:
    """Every value that others with a right to read could see."""
    with server.overseer() as client:
        keys = {key: client.type(key) for key in client.scan_iter("*")}
    with server.overseer(decode_responses=False) as client:
        kinds = {"hash": client.hgetall, "string": client.get, "stream": client.xrange}
        return str([kinds[kind](key) for key, kind in keys.items() if kind in kinds])


@pytest.mark.timeout(60)
async def test_who_has_no_certificate_password_or_authority_is_refused_in_words(server: GuardedServer) -> None:
    whole = with_password(exports(server)[URL_VARIABLE], PASSWORD)
    await (await RedisBroker.connect(whole, "run")).close()
    for url, refusal in (
        (with_password(server.url, "wrong"), Misconfigured),
        (f"rediss://localhost:{server.port}/0", Unavailable),
        (f"rediss://localhost:{server.port}/0?ssl_ca_certs={server.folder}/ca.pem", Unavailable),
        (whole.replace("localhost", "127.0.0.1"), Unavailable),
        (f"redis://localhost:{server.port}/0", Unavailable),
        (whole.replace("rediss", "redis"), Misconfigured),
        (whole.replace("ca.pem", "no.pem"), Misconfigured),
    ):
        with pytest.raises(refusal) as told:
            await RedisBroker.connect(url, "run")
        assert PASSWORD not in str(told.value) and "s3same" not in str(told.value)


@pytest.mark.timeout(60)
def test_the_account_can_do_no_harm_beyond_its_keys(server: GuardedServer) -> None:
    with redis.Redis.from_url(with_password(server.url, PASSWORD)) as client:
        for words in (("FLUSHALL",), ("CONFIG", "GET", "*"), ("SET", "other", "1"), ("KEYS", "*"), ("ACL", "LIST")):
            with pytest.raises(NoPermissionError):
                client.execute_command(*words)
        for words in (("SHUTDOWN",), ("REPLICAOF", "NO", "ONE"), ("MODULE", "LIST"), ("DEBUG", "HELP")):
            with pytest.raises(ResponseError):
                client.execute_command(*words)
    with server.overseer() as overseer:
        overseer.acl_log_reset()
