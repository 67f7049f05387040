"""Where a process answers Prometheus, and how Prometheus learns of it.

For: opening the address that the run or the environment names, and a target file for `file_sd_configs`. Not for:
counting (`metrics`).

    runs/metrics/RUN.PROCESS.json       [{"targets": ["127.0.0.1:41233"], "labels": {"run": …, "role": …, …}}]

One file a process, written whole; it goes when its process leaves in good order. An endpoint that cannot be opened is
said and done without: no work waits for being watched.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import socket
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIServer

import structlog
from prometheus_client import start_http_server

from broker.measures import GROUP_SECONDS, GROUPS, HELD, READY, STATE_SECONDS, TOKENS, VERSION
from broker.metrics import Facts, Metrics, Named, said
from broker.settings import METRICS_VARIABLE, SLOT_VARIABLE, metrics_address, telemetry_section
from broker.telemetry import Meter

log = structlog.get_logger()

TRIES = 20
"""Ports tried from the one named."""
KNOCK_S = 0.2
FOLDER = "metrics"
"""Of the target files, beside the runs."""


class Endpoint:
    """Of one process; silent until it joins a run."""

    def __init__(self, metrics: Metrics, *, role: str, process: str, slot: str = "") -> None:
        self.names = {"run": "", "role": role, "process": process, "slot": slot}
        self.metrics = metrics
        self.server: WSGIServer | None = None
        self.address = ""
        """HOST:PORT as others reach it; empty while it is silent."""
        self.target: Path | None = None

    def join(self, folder: Path, raw: Mapping[str, Any]) -> None:
        """From now on it speaks of the run in `folder`, whose settings these are."""
        self.names["run"] = folder.name
        where = metrics_address(telemetry_section(raw))
        if where == "off":
            return
        try:
            if self.server is None:
                self.open(where)
            self.announce(folder)
        except OSError as error:
            log.warning("metrics are not served", address=where, reason=str(error), mend=f"set {METRICS_VARIABLE}")

    def open(self, where: str) -> None:
        """Raises OSError when the address is not ours or none of the ports is free."""
        host, _, port = where.rpartition(":")
        host, first = host.strip("[]"), int(port)
        ports = [first] if first == 0 else range(first, min(first + TRIES, 65536))
        for port in ports:
            try:
                self.server, _ = start_http_server(port, host, Named(self.metrics.registry, self.names))  # type: ignore[arg-type]
                break
            except OSError:
                if port == ports[-1]:
                    raise
        assert self.server is not None
        self.metrics.about_the_process()
        self.address = f"{reached_at(host)}:{self.server.server_port}"

    def announce(self, folder: Path) -> None:
        """Write the target file, whole or not at all."""
        self.withdraw()
        place = folder.parent / FOLDER
        place.mkdir(exist_ok=True)
        self.target = place / f"{folder.name}.{self.names['process']}.json"
        unfinished = place / f".{self.target.name}.{os.getpid()}"
        unfinished.write_text(json.dumps([{"targets": [self.address], "labels": said(self.names)}]) + "\n")
        unfinished.replace(self.target)

    def withdraw(self) -> None:
        """Take the target file away, if it is still ours."""
        if self.target is not None:
            with contextlib.suppress(OSError, ValueError, LookupError):
                if json.loads(self.target.read_text())[0]["targets"] == [self.address]:
                    self.target.unlink()
            self.target = None

    def close(self) -> None:
        self.withdraw()
        if self.server is not None:
            self.server.shutdown()
            self.server.server_close()
            self.server, self.address = None, ""


def reached_at(host: str) -> str:
    """How others call a host that listens on this address; this machine's name where it listens on all."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if address.is_unspecified:
        return socket.gethostname()
    return f"[{host}]" if address.version == 6 else host


def withdraw_dead(folder: Path) -> None:
    """Take away the target files that processes of this run left when they were killed: nobody listens there."""
    for path in (folder.parent / FOLDER).glob(f"{folder.name}.*.json"):
        try:
            host, _, port = json.loads(path.read_text())[0]["targets"][0].rpartition(":")
            socket.create_connection((host.strip("[]"), int(port)), timeout=KNOCK_S).close()
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
        except (OSError, ValueError, LookupError):
            continue  # on a host that is out of reach it may live


@contextlib.asynccontextmanager
async def measured(folder: Path, raw: Mapping[str, Any], name: str, role: str, meter: Meter) -> AsyncGenerator[None]:
    """Answer Prometheus for one role's process while the block runs."""
    endpoint = Endpoint(meter.metrics, role=role, process=name, slot=os.environ.get(SLOT_VARIABLE, ""))
    meter.metrics.ask(lambda: facts_of(meter))
    endpoint.join(folder, raw)
    try:
        yield
    finally:
        endpoint.close()


def facts_of(meter: Meter) -> Facts:
    """What the heartbeat says too, at this moment."""
    states = {"busy": meter.busy_s, "waiting": max(0.0, meter.wait_s - meter.loading_s), "loading": meter.loading_s}
    for state, seconds in states.items():
        yield STATE_SECONDS, {"state": state}, seconds
    yield GROUPS, {}, meter.items
    yield GROUP_SECONDS, {}, meter.spent_s
    if meter.tokens:
        yield TOKENS, {}, meter.tokens
    yield HELD, {}, meter.held
    yield READY, {}, meter.ready
    if meter.version >= 0:
        yield VERSION, {}, meter.version
