"""Prometheus and Flower beside the cluster, brought up by their profiles of the shipped file.

For: `test_cluster`. Not for: what they see (`tests/integration`: `test_prometheus`, `test_flower`). A machine that can
pull no image of Prometheus gives Debian's two programs the image's name.
"""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
import tempfile
import urllib.error
import urllib.request
from collections.abc import Generator
from pathlib import Path
from typing import Any

from tests.compose.cluster import Cluster
from tests.compose.engine import BASES, NoEngine, done

PROGRAMS = ("prometheus", "promtool")


class Beside:
    """Both services, as a person on this machine reaches them."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.prometheus = f"http://{cluster.compose('port', 'prometheus', '9090').strip()}"
        self.flower = f"http://{cluster.compose('port', 'flower', '5555').strip()}"

    def roles(self) -> set[str]:
        """Those of which Prometheus hears every process that says it can be heard."""
        with contextlib.suppress(OSError):
            found = json.loads(answer(f"{self.prometheus}/api/v1/targets?state=active"))["data"]["activeTargets"]
            silent = {target["labels"]["role"] for target in found if target["health"] != "up"}
            return {target["labels"]["role"] for target in found} - silent
        return set()

    def workers(self) -> dict[str, Any]:
        """Worker, without its host → what Flower's page says of it."""
        with contextlib.suppress(OSError):
            token = self.cluster.environment["TIDEMILL_TOKEN"]
            rows = json.loads(answer(f"{self.flower}/workers?json=1", f"tidemill:{token}"))["data"]
            return {row["hostname"].partition("@")[0]: row for row in rows}
        return {}


def answer(address: str, account: str = "") -> str:
    word = {"Authorization": f"Basic {base64.b64encode(account.encode()).decode()}"} if account else {}
    with urllib.request.urlopen(urllib.request.Request(address, headers=word), timeout=20) as said:
        return said.read().decode()


def refused(address: str) -> int:
    """The status with which it refuses whoever says no password; 0 when it does not."""
    try:
        answer(address)
    except urllib.error.HTTPError as error:
        return error.code
    return 0


@contextlib.contextmanager
def beside(cluster: Cluster) -> Generator[Beside]:
    """Both while the block runs. Raises NoEngine when no Prometheus can be had."""
    cluster.environment |= {"PROMETHEUS_PORT": "0", "FLOWER_PORT": "0"}
    profiles = ("--profile", "monitoring", "--profile", "flower")
    described = json.loads(cluster.compose(*profiles, "config", "--format", "json"))
    have(cluster, described["services"]["prometheus"]["image"])
    cluster.compose(*profiles, "build", "flower")
    cluster.compose(*profiles, "up", "-d", "--no-recreate", "--no-deps", "prometheus", "flower")
    try:
        yield Beside(cluster)
    finally:
        cluster.compose(*profiles, "rm", "-sf", "prometheus", "flower", well=False)


def have(cluster: Cluster, image: str) -> None:
    """The image is here, or pulled, or stood in for."""
    for way in ("image inspect", "pull -q"):
        with contextlib.suppress(NoEngine):
            done(["docker", *way.split(), image], cluster.environment)
            return
    programs = [found for program in PROGRAMS if (found := shutil.which(program))]
    if len(programs) < len(PROGRAMS):
        raise NoEngine(f"{image} cannot be pulled here, and no Prometheus is installed that could stand in for it")
    with tempfile.TemporaryDirectory() as folder:
        for program in programs:
            shutil.copy(program, folder)
        lines = f'FROM {BASES[0]}\nCOPY {" ".join(PROGRAMS)} /bin/\nUSER nobody\nENTRYPOINT ["/bin/prometheus"]\n'
        (Path(folder) / "Dockerfile").write_text(lines)
        done(["docker", "build", "-q", "-t", image, folder], cluster.environment)
