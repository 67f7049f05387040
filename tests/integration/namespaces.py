"""Network namespaces as hosts on a switch, with cables that can be pulled.

For: tests that need a network which fails. Not for: what runs on the hosts (`hosts`). The switch is a namespace too, so
nothing of this machine's own network is touched. Names carry our process id: two test runs at once do not meet, and
what a killed one left is swept away by the next.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

PREFIX = "tidemill-test"


def ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


@cache
def refused() -> str:
    """Why no namespaces can be made here; empty where they can."""
    name = f"{PREFIX}-{os.getpid()}-try"
    try:
        ip("netns", "add", name)
        try:
            ip("-n", name, "link", "add", "one", "type", "veth", "peer", "name", "two")
            ip("-n", name, "link", "add", "joined", "type", "bridge")
        finally:
            ip("netns", "del", name)
    except OSError as error:
        return f"no network namespaces here (they need root, iproute2, veth and bridge): {error}"
    return ""


needs_namespaces = pytest.mark.skipif(bool(refused()), reason=refused())


class Network:
    """A switch and the hosts on it."""

    def __init__(self, hosts: Sequence[str]) -> None:
        self.name = f"{PREFIX}-{os.getpid()}-{time.monotonic_ns() % 1_000_000}"
        self.switch = f"{self.name}-switch"
        self.addresses = {host: f"10.77.0.{number}" for number, host in enumerate(hosts, 1)}
        sweep()

    def build(self) -> None:
        ip("netns", "add", self.switch)
        ip("-n", self.switch, "link", "add", "joined", "type", "bridge")
        ip("-n", self.switch, "link", "set", "joined", "up")
        for host, address in self.addresses.items():
            there = self.namespace(host)
            ip("netns", "add", there)
            port, near = self.port(host), ("netns", self.switch)
            ip("link", "add", port, *near, "type", "veth", "peer", "name", "eth0", "netns", there)
            ip("-n", self.switch, "link", "set", port, "master", "joined", "up")
            ip("-n", there, "address", "add", f"{address}/24", "dev", "eth0")
            for interface in ("lo", "eth0"):
                ip("-n", there, "link", "set", interface, "up")

    def namespace(self, host: str) -> str:
        return f"{self.name}-{host}"

    def port(self, host: str) -> str:
        """The switch's end of the host's cable."""
        return f"port-{host}"

    def cut(self, host: str) -> None:
        """Pull the cable: the host itself sees that it has none."""
        ip("-n", self.switch, "link", "set", self.port(host), "down")

    def silence(self, host: str) -> None:
        """The cable stays, and every packet vanishes: nobody is told."""
        ip("-n", self.switch, "link", "set", self.port(host), "nomaster")

    def mend(self, host: str) -> None:
        ip("-n", self.switch, "link", "set", self.port(host), "master", "joined", "up")

    def remove(self) -> None:
        for namespace in [*map(self.namespace, self.addresses), self.switch]:
            with contextlib.suppress(OSError):
                ip("netns", "del", namespace)


def sweep() -> None:
    """Delete the namespaces of test processes that live no more."""
    for path in Path("/run/netns").glob(f"{PREFIX}-*"):
        owner = path.name.removeprefix(f"{PREFIX}-").partition("-")[0]
        if not Path(f"/proc/{owner}").exists():
            with contextlib.suppress(OSError):
                ip("netns", "del", path.name)
