"""Three hosts with one run: a server with a password on the first, slots on all, one shared disk.

For: tests of what an operator of several machines meets. Not for: the network (`namespaces`), nor the roles, which are
started by the very command lines of `docs/operations.md`.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import redis

from broker.embedded_server import find_server_file
from broker.fleet import FLEET_VARIABLE
from broker.lifeline import tied_to_this_process
from broker.settings import URL_VARIABLE
from deploy.records import records
from deploy.run_check import load_run
from deploy.run_folder import new_run_folder
from tests.integration.namespaces import Network
from tests.integration.test_launcher import lay_model, left_over, until

SERVER = "a"
"""The host that has the server."""


class Cluster:
    """Three hosts with one run folder: `a` has the server and the launcher, the others slots."""

    def __init__(self, folder: Path, network: Network) -> None:
        self.folder = folder
        self.network = network
        self.password = secrets.token_hex(16)
        self.fleet = network.name
        self.outside = folder.parent.parent / "server"
        self.said = folder.parent.parent / "said"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    # Processes, each on its host

    @property
    def url(self) -> str:
        return f"redis://:{self.password}@{self.network.addresses[SERVER]}:6379/0"

    @property
    def environment(self) -> Mapping[str, str]:
        given = {URL_VARIABLE: self.url, FLEET_VARIABLE: self.fleet, "TIDEMILL_RUNS": str(self.folder.parent)}
        return {**os.environ, "OMP_NUM_THREADS": "1", **given}

    def on(self, host: str, *argv: str | Path) -> list[str]:
        return ["ip", "netns", "exec", self.network.namespace(host), *map(str, argv)]

    def start(self, name: str, host: str, *argv: str | Path) -> subprocess.Popen[bytes]:
        """A process on a host, until the test's end; what it prints is in `said`."""
        self.said.mkdir(exist_ok=True)
        with (self.said / name).open("ab") as said:
            self.processes[name] = subprocess.Popen(
                self.on(host, *argv),
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                preexec_fn=tied_to_this_process(),  # noqa: PLW1509 - one system call, nothing that locks
            )
        return self.processes[name]

    def serve(self) -> None:
        """The server as `docs/operations.md` wants it; its socket is how the test looks on, cut or not."""
        self.outside.mkdir(mode=0o700)
        lines = [
            f"bind {self.network.addresses[SERVER]}",
            "port 6379",
            f"requirepass {self.password}",
            f"unixsocket {self.outside}/socket",
            f"dir {self.outside}",
            'save ""',
            "appendonly yes",
            "maxmemory-policy noeviction",
        ]
        (self.outside / "conf").write_text("\n".join(lines) + "\n")
        self.start("server", SERVER, find_server_file(), self.outside / "conf")
        until(self.answers, 20)

    def answers(self) -> bool:
        with contextlib.suppress(redis.RedisError):
            return bool(self.client().ping())
        return False

    def client(self) -> redis.Redis:
        return redis.Redis(unix_socket_path=f"{self.outside}/socket", password=self.password, decode_responses=True)

    def launch(self) -> subprocess.Popen[bytes]:
        """`tidemill resume` on the server's host: feeder, reward, a scheduler and the first slot."""
        return self.start("launcher", SERVER, sys.executable, "-m", "deploy.cli", "resume", self.folder.name)

    def slot(self, slot: str, host: str, pool: str) -> subprocess.Popen[bytes]:
        argv = ["-n", f"{slot}@{host}", "-P", "prefork", "-c", "1", "-Q", "control", "-l", "warning"]
        argv += ["--without-gossip", "--without-mingle", "--without-heartbeat"]
        argv += ["--slot", slot, "--initial-pool", pool]
        return self.start(slot, host, sys.executable, "-m", "celery", "-A", "scheduler.slots", "worker", *argv)

    def scheduler(self, host: str) -> subprocess.Popen[bytes]:
        return self.start(f"scheduler-{host}", host, sys.executable, "-m", "deploy.cli", "scheduler", self.folder.name)

    def type(self, host: str, *arguments: str, module: str = "deploy.cli") -> subprocess.CompletedProcess[str]:
        """A command as a person types it on that host; what it prints is kept in `said`."""
        done = subprocess.run(
            self.on(host, sys.executable, "-m", module, *arguments),
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        with (self.said / "commands").open("a") as said:
            said.write(done.stdout + done.stderr)
        return done

    def tidemill(self, host: str, *arguments: str) -> str:
        """What a command prints that must succeed."""
        done = self.type(host, *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def celery(self, host: str, *arguments: str) -> str:
        """What a stock Celery command prints, answered or not."""
        done = self.type(host, "-A", "scheduler.slots", *arguments, "--timeout", "2", module="celery")
        return done.stdout + done.stderr

    def ask(self, host: str, *arguments: str) -> Any:
        return json.loads(self.tidemill(host, *arguments, "--json"))

    # What is seen

    def text(self, name: str) -> str:
        return (self.said / name).read_text()

    def version(self) -> int:
        path = self.folder / "steps.jsonl"
        return len(path.read_text().splitlines()) if path.is_file() else 0

    def reports(self) -> dict[str, dict[str, Any]]:
        """Last report of each slot, and its age."""
        client = self.client()
        said: Any = client.hgetall(f"tm:{{{self.fleet}}}:said")
        clock: Any = client.time()
        reports = {slot: json.loads(report) for slot, report in said.items()}
        return {slot: {**report, "age_s": clock[0] + clock[1] / 1e6 - report["at"]} for slot, report in reports.items()}

    def reach(self, slot: str, within_s: float = 90, **facts: Any) -> dict[str, Any]:
        """The report of a slot that is heard now, once it says these facts."""

        def found() -> Any:
            report = self.reports().get(slot, {"age_s": 100})
            return report["age_s"] < 3 and facts.items() <= report.items() and report

        return self.until(found, within_s)

    def until(self, condition: Callable[[], Any], within_s: float = 90) -> Any:
        """Wait for a state; one that does not come says how the slots are instead."""
        try:
            return until(condition, within_s)
        except AssertionError:
            raise AssertionError(f"the awaited state did not come within {within_s:g} s: {self.reports()}") from None

    def in_hand(self, slot: str, stream: str = "prompts", role: str = "rollout") -> list[str]:
        """Groups that this slot's readers hold."""
        client, key = self.client(), f"tm:{{{self.folder.name}}}:{stream}"
        pending: Any = client.xpending_range(key, role, "-", "+", 10_000)
        mine = [one["message_id"] for one in pending if one["consumer"].rpartition(".")[0] == slot]
        entries: list[Any] = [entry for one in mine for entry in client.xrange(key, one, one) or []]
        return [fields["group"] for _, fields in entries]

    def log(self, slot: str, event: str) -> list[dict[str, Any]]:
        """Lines of a process's log that say this."""
        path = self.folder / "logs" / f"{slot}.jsonl"
        return [line for line in records(path) if line["event"] == event]

    def decisions(self) -> list[dict[str, Any]]:
        rows: Any = self.client().xrange(f"tm:{{{self.fleet}}}:decisions")
        return [json.loads(fields["decision"]) for _, fields in rows]

    def close(self) -> None:
        """End everything, the server last."""
        others = [process for name, process in self.processes.items() if name != "server"]
        for ending in (others, [self.processes["server"]] if "server" in self.processes else []):
            for process in ending:
                process.terminate()
            for process in ending:
                try:
                    process.wait(60)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait(10)


@contextlib.contextmanager
def cluster(tmp_path: Path, overrides: Sequence[str], hosts: Sequence[str] = ("a", "b", "c")) -> Generator[Cluster]:
    """Hosts, server and a run folder on the shared disk; at the end nothing of it is left."""
    folder = new_run_folder(load_run("addition", overrides), tmp_path / "runs", datetime.now(UTC)).resolve()
    lay_model(folder / "model")
    network = Network(hosts)
    made = Cluster(folder, network)
    try:
        network.build()
        made.serve()
        yield made
    finally:
        for host in hosts:
            with contextlib.suppress(OSError):
                network.mend(host)
        made.close()
        network.remove()
    assert left_over(folder) == []
