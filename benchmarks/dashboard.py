"""What the dashboard costs and how fast it answers: `python -m benchmarks.dashboard`.

Two cases, each with the real command and real HTTP. *Watched*: a run with 10,000 groups open on a real server, and 20
browsers that read its events; measured is the processor time of Redis and of the dashboard. *Browsed*: a run that has
finished 100,000 groups; measured is how long it takes to index them (once), then each thing that a person asks, over
HTTP and, where there is a Chromium, in the page (`dashboard_page`).
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

from benchmarks.dashboard_page import chromium, used
from benchmarks.dashboard_run import laid
from benchmarks.result import Result, circumstances, gathered
from benchmarks.status import CASES, cpu_s, filled
from broker import embedded_server
from deploy.run_check import load_run
from deploy.run_folder import new_run_folder

GROUPS = 100_000
BROWSERS = 20
WATCHED_S = 20
ASKED = 20
WATCHED, BROWSED = "watched, 10,000 open", "browsed, 100,000 finished"
QUESTIONS = {
    "newest": "",
    "by fate": "fate=no_signal&sort=-length",
    "by reward, deep": "reward_min=0&page=1000",
    "by text": "text=and+777",
}


@contextmanager
def dashboard(root: Path) -> Generator[tuple[int, psutil.Process]]:
    """The command as a person gives it: its port and its process."""
    command = [sys.executable, "-m", "deploy.cli", "dashboard", "--port", "0"]
    environment = {**os.environ, "TIDEMILL_RUNS": str(root)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout
        yield int(process.stdout.readline().rsplit(":", 1)[1].strip().rstrip("/")), psutil.Process(process.pid)
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
    """Seconds of every question, and what share of a processor the dashboard took to answer them without a pause."""
    began = time.monotonic()
    folder = laid(root, GROUPS)
    print(f"{GROUPS} groups laid in {time.monotonic() - began:.0f} s", flush=True)
    with dashboard(root) as (port, process):
        address, began, before = f"/api/runs/{folder.name}/groups", time.monotonic(), cpu_s(process)
        while "reading" in asked(port, address)[1]:
            time.sleep(0.2)
        found = {"index, s": round(time.monotonic() - began, 1), "index, cpu s": round(cpu_s(process) - before, 2)}
        began, before = time.monotonic(), cpu_s(process)
        for name, words in QUESTIONS.items():
            found |= spread(f"list {name}", [asked(port, f"{address}?{words}")[0] for _ in range(ASKED)])
        places = np.linspace(0, GROUPS - 1, ASKED).astype(int)
        found |= spread("open a group", [asked(port, f"{address}/bench/0/{place}")[0] for place in places])
        share = (cpu_s(process) - before) / (time.monotonic() - began)
        found["processor share while asked, percent"] = round(100 * share, 1)
        if browser := chromium():
            found |= used(port, folder.name, GROUPS, browser)
    return found


def spread(name: str, seconds: Sequence[float]) -> dict[str, float]:
    """Median and 95th percentile."""
    return {
        f"{name}, s": round(float(np.median(seconds)), 4),
        f"{name}, p95 s": round(float(np.quantile(seconds, 0.95)), 4),
    }


def watched(root: Path) -> dict[str, float]:
    folder = new_run_folder(load_run("addition"), root, datetime.now(UTC)).resolve()
    with embedded_server.serving(folder / "redis") as url, dashboard(root) as (port, process):
        asyncio.run(closed_after(folder, url))
        server = psutil.Process(embedded_server.pid(folder / "redis"))
        stop = threading.Event()
        heard = list[int]()
        told = (port, folder.name, stop, heard)
        browsers = [threading.Thread(target=read_events, args=told) for _ in range(BROWSERS)]
        for browser in browsers:
            browser.start()
        time.sleep(3)
        before = [cpu_s(one) for one in (server, process)]
        time.sleep(WATCHED_S)
        shares = [(cpu_s(one) - was) / WATCHED_S for one, was in zip((server, process), before, strict=True)]
        stop.set()
        for browser in browsers:
            browser.join()
        assert len(heard) == BROWSERS, f"only {len(heard)} of {BROWSERS} browsers were answered"
        assert min(heard) > WATCHED_S / 2, f"looks that each browser heard of: {heard}"
    of_redis, of_dashboard = (round(100 * share, 2) for share in shares)
    return {"processor share of Redis, percent": of_redis, "processor share of the dashboard, percent": of_dashboard}


async def closed_after(folder: Path, url: str) -> None:
    broker = await filled(folder, url, CASES["10,000 open, 8 slots"])
    await broker.close()


def read_events(port: int, run: str, stop: threading.Event, heard: list[int]) -> None:
    """Until told to stop; adds how many looks it heard of."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", f"/api/runs/{run}/events")
    answer, looks = connection.getresponse(), 0
    while not stop.is_set():
        looks += answer.readline().startswith(b"event: more")
    connection.close()
    heard.append(looks)


def in_folder(case: Any) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as name:
        return case(Path(name))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=1)
    repeats = parser.parse_args().repeats
    before = circumstances()
    found: dict[str, Sequence[dict[str, float]]] = {}
    for name, case in {WATCHED: watched, BROWSED: browsed}.items():
        found[name] = [in_folder(case) for _ in range(repeats)]
        print(name, found[name], flush=True)
    result = Result(
        name="dashboard",
        measures="what the dashboard costs, and how long it keeps a person waiting who looks through 100,000 groups",
        circumstances=before,
        settings={"repeats": repeats, "groups": GROUPS, "asked": ASKED, "browsers": BROWSERS, "watched_s": WATCHED_S},
        samples={name: gathered(samples) for name, samples in found.items()},
    )
    result.save(headline(result))


def headline(result: Result) -> str:
    shares = [result.median(WATCHED, f"processor share of {name}, percent") for name in ("Redis", "the dashboard")]
    told = [
        f"{BROWSERS} browsers, 10,000 open: {shares[0]:.1f}% of a core for Redis, {shares[1]:.0f}% for the dashboard"
    ]
    figures = [f"list {name}" for name in QUESTIONS] + ["open a group"]
    answers = [f"{name} {1e3 * result.median(BROWSED, f'{name}, s'):.0f} ms" for name in figures]
    told.append(
        f"{GROUPS:,} finished: index {result.median(BROWSED, 'index, cpu s'):.1f} s of a core, " + ", ".join(answers)
    )
    if "rollouts, longest task, ms" in result.samples[BROWSED]:
        by_clock, by_core = (
            max(result.median(BROWSED, f"{view}, longest task, {unit}") for view in ("overview", "rollouts"))
            for unit in ("ms", "processor ms")
        )
        told.append(f"the page does not listen for {by_clock:.0f} ms at most, {by_core:.0f} ms of them at work")
    return "; ".join(told)


if __name__ == "__main__":
    main()
