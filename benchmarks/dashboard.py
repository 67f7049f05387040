"""What the dashboard costs and how fast it answers: `python -m benchmarks.dashboard`.

Two cases, each with the real command and real HTTP. *Watched*: a run with 10,000 groups open on a real server, and 20
browsers that read its events; measured is the processor time of the Redis process. *Browsed*: a run that has finished
100,000 groups; measured is how long the first list takes (the archive is indexed once), then what a person asks.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.message_sizes import parts_of
from benchmarks.result import Result, circumstances, gathered
from benchmarks.status import CASES, cpu_s, filled
from broker import embedded_server
from broker.archive import Archive
from broker.messages import Delivery, Entry, Group
from deploy.run_check import load_run
from deploy.run_folder import new_run_folder

GROUPS = 100_000
BROWSERS = 20
WATCHED_S = 20
ASKED = 10
QUESTIONS = {
    "newest": "",
    "by fate": "fate=no_signal&sort=-length",
    "by reward, deep": "reward_min=0&page=1000",
    "by text": "text=/77777",
}


@contextmanager
def dashboard(root: Path) -> Generator[int]:
    """The command as a person gives it; its port."""
    command = [sys.executable, "-m", "deploy.cli", "dashboard", "--port", "0"]
    environment = {**os.environ, "TIDEMILL_RUNS": str(root)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout
        yield int(process.stdout.readline().rsplit(":", 1)[1].strip().rstrip("/"))
    finally:
        process.terminate()
        process.wait(10)


def asked(port: int, path: str) -> tuple[float, Any]:
    """Seconds, and the answer."""
    began = time.monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path)
    answer = json.loads(connection.getresponse().read())
    connection.close()
    return time.monotonic() - began, answer


def browsed(root: Path) -> dict[str, float]:
    folder = new_run_folder(load_run("addition"), root, datetime.now(UTC))
    archive, parts = Archive(folder / "groups", "trainer-0"), parts_of(1 << 10)
    for number in range(GROUPS):
        entry = Entry(
            group=f"bench/0/{number}", kind="train", task="bench", size=parts.prompt.size, floor=0, last_version=1
        )
        group = Group(id=entry.group, kind="train", prompt=parts.prompt, rollouts=parts.rollouts, scores=parts.scores)
        delivery = Delivery(stream="scored", entry_id=f"{number + 1}-0", entry=entry)
        if number % 3:
            archive.append(
                group,
                delivery,
                fate="trained",
                version=number // 64,
                advantages=np.zeros(group.prompt.size, np.float32),
            )
        else:
            archive.append(group, delivery, fate="retired", reason="no_signal")
    archive.close()
    with dashboard(root) as port:
        address, began = f"/api/runs/{folder.name}/groups", time.monotonic()
        while "reading" in asked(port, address)[1]:
            time.sleep(0.2)
        found = {"first_list_s": round(time.monotonic() - began, 1)}
        for name, words in QUESTIONS.items():
            times = [asked(port, f"{address}?{words}")[0] for _ in range(ASKED)]
            found[f"list {name}, ms"] = round(1e3 * float(np.median(times)), 1)
        times = [asked(port, f"{address}/bench/0/{GROUPS // 2 + number}")[0] for number in range(ASKED)]
        return {**found, "one group, ms": round(1e3 * float(np.median(times)), 1)}


def watched(root: Path) -> dict[str, float]:
    folder = new_run_folder(load_run("addition"), root, datetime.now(UTC)).resolve()
    with embedded_server.serving(folder / "redis") as url, dashboard(root) as port:
        asyncio.run(closed_after(folder, url))
        server = psutil.Process(embedded_server.pid(folder / "redis"))
        stop = threading.Event()
        browsers = [threading.Thread(target=read_events, args=(port, folder.name, stop)) for _ in range(BROWSERS)]
        for browser in browsers:
            browser.start()
        time.sleep(3)
        before = cpu_s(server)
        time.sleep(WATCHED_S)
        share = (cpu_s(server) - before) / WATCHED_S
        stop.set()
        for browser in browsers:
            browser.join()
    return {"share_of_redis_percent": round(100 * share, 3), "browsers": BROWSERS}


async def closed_after(folder: Path, url: str) -> None:
    broker = await filled(folder, url, CASES["10,000 open, 8 slots"])
    await broker.close()


def read_events(port: int, run: str, stop: threading.Event) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", f"/api/runs/{run}/events")
    answer = connection.getresponse()
    while not stop.is_set():
        answer.readline()
    connection.close()


def in_folder(case: Any) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as name:
        return case(Path(name))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=1)
    repeats = parser.parse_args().repeats
    before = circumstances()
    found: dict[str, Sequence[dict[str, float]]] = {}
    for name, case in {"watched, 10,000 open": watched, "browsed, 100,000 finished": browsed}.items():
        found[name] = [in_folder(case) for _ in range(repeats)]
        print(name, found[name], flush=True)
    result = Result(
        name="dashboard",
        measures="what the dashboard costs Redis, and how fast it answers about 100,000 finished groups",
        circumstances=before,
        settings={"repeats": repeats, "groups": GROUPS, "browsers": BROWSERS, "watched_s": WATCHED_S},
        samples={name: gathered(samples) for name, samples in found.items()},
    )
    share = result.median("watched, 10,000 open", "share_of_redis_percent")
    listed = {name: result.median("browsed, 100,000 finished", f"list {name}, ms") for name in QUESTIONS}
    result.save(
        f"{BROWSERS} browsers, 10,000 open: {share:.2f}% of Redis; 100,000 finished: first list "
        f"{result.median('browsed, 100,000 finished', 'first_list_s'):.0f} s, then "
        + ", ".join(f"{name} {ms:.0f} ms" for name, ms in listed.items())
    )


if __name__ == "__main__":
    main()
