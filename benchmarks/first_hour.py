"""From nothing to a model that has learned, as a newcomer meets it: `python -m benchmarks.first_hour`.

This repository is cloned into an empty folder, and README's own command, `make run`, is typed there: it installs,
warms a model up and trains it. Moments are read from what the command says and from the run's folder. Package caches
are empty (`--keep-caches` uses this machine's), the system's packages are there already. Only what is committed is
cloned.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.first_hour_picture import draw
from benchmarks.launched_run import LaunchedRun
from benchmarks.result import RESULTS, Result, circumstances, gathered

REPOSITORY = Path(__file__).parent.parent
COMMAND = ("make", "run")
"""README's."""
GOAL = 0.9
"""Held-out accuracy that is waited for; the run itself goes on to its own stop rule."""
LONGEST_S = 1800.0
"""A command that takes longer is ended."""
INSTALLED = re.compile(r"setup: ready in ")
STATUS = re.compile(r"\d+:\d\d  \w")
"""A line of the run's progress: its clock and its stage."""
OURS = {
    *("VENV", "DEVICE", "VLLM", "DEV", "SMOLLM2", "RUN", "ARGS", "MAKEFLAGS", "MAKELEVEL", "MFLAGS"),
    *("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "HF_HUB_OFFLINE", "VIRTUAL_ENV", "PYTHONPATH"),
}
"""Variables that this benchmark may be run with and a newcomer has not set."""
MB = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Typed:
    """The command, ended; moments are seconds since 1970."""

    typed_at: float
    installed_at: float
    first_status_at: float
    ended_at: float
    received_mb: float
    """By all of the machine's interfaces until the installation was done."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--keep-caches", action="store_true", help="the caches of pip and uv as they are here")
    parser.add_argument("--folder", type=Path, default=RESULTS, help="where the result and its picture go")
    options = parser.parse_args()
    before = circumstances()
    found: list[dict[str, float]] = []
    for _ in range(options.repeats):
        with tempfile.TemporaryDirectory() as root:
            found.append(measured(Path(root), options.keep_caches))
            print(*(f"{name}: {value:,.1f}" for name, value in found[-1].items()), sep="\n", flush=True)
    case = "caches as they were" if options.keep_caches else "empty caches"
    result = Result(
        name="first_hour" + ("-warm" if options.keep_caches else ""),
        measures=f"from `git clone` to held-out accuracy {GOAL:g} by README's own command, {case}",
        circumstances=before,
        arguments="--keep-caches" if options.keep_caches else "",
        settings={"command": " ".join(COMMAND), "goal": GOAL, "repeats": options.repeats},
        samples={case: gathered(found)},
    )
    draw({name: result.median(case, name) for name in found[0]}, options.folder / f"{result.name}.png")
    result.save(headline(result, case), folder=options.folder)


def measured(root: Path, keep_caches: bool) -> dict[str, float]:
    """One newcomer. Raises RuntimeError when a command fails, LookupError when the goal was not reached."""
    clone = root / "tidemill"
    began_at = time.time()
    subprocess.run(["git", "clone", "--quiet", f"file://{REPOSITORY}", clone], check=True)
    cloned_at = time.time()
    git_mb, tree_mb = disk_mb(clone / ".git"), disk_mb(clone)
    caches = {} if keep_caches else {"UV_CACHE_DIR": str(root / "uv"), "PIP_CACHE_DIR": str(root / "pip")}
    typed = typed_in(clone, environment() | caches)
    run = LaunchedRun(
        folder=(clone / "runs" / "latest").resolve(),
        typed_at=typed.typed_at,
        first_output_at=typed.first_status_at,
        ended_at=typed.ended_at,
    )
    at = {
        "cloned": cloned_at,
        "installed": typed.installed_at,
        "first status line": typed.first_status_at,
        "first rollout": run.logged_at("rollout-0", "first rollouts"),
        "first step": run.steps[0]["at"],
        f"accuracy {GOAL:g}": reached_at(run),
        "the command's end": typed.ended_at,
    }
    megabytes = {
        "history in the clone": git_mb,
        "files in the clone": tree_mb - git_mb,
        "environment": disk_mb(clone / ".venv"),
        "run folder": disk_mb(run.folder),
        "models kept for the next run": disk_mb(clone / "runs" / ".cache"),
        "received by the machine meanwhile": typed.received_mb,
        **({} if keep_caches else {"package caches": disk_mb(root / "uv") + disk_mb(root / "pip")}),
    }
    return {
        **{f"{name} (s)": round(moment - began_at, 2) for name, moment in at.items()},
        **{f"{name} (MB)": round(size, 1) for name, size in megabytes.items()},
    }


def environment() -> dict[str, str]:
    """A newcomer's: without what this benchmark was run with."""
    return {name: value for name, value in os.environ.items() if name not in OURS and not name.startswith("TIDEMILL_")}


def typed_in(clone: Path, variables: Mapping[str, str]) -> Typed:
    """Type the command there and read along. Raises RuntimeError when it fails or takes too long."""
    typed_at, received_before = time.time(), received_mb()
    with subprocess.Popen(
        COMMAND,
        cwd=clone,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        overdue = threading.Timer(LONGEST_S, os.killpg, (process.pid, signal.SIGTERM))
        overdue.start()
        try:
            said = list(read_along(process))
        finally:
            overdue.cancel()
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
    words = "".join(one.line for one in said[-40:])
    if process.returncode:
        raise RuntimeError(f"{' '.join(COMMAND)} ended with exit code {process.returncode}; it said:\n{words}")
    installed, status = (next(one for one in said if sign.match(one.line)) for sign in (INSTALLED, STATUS))
    return Typed(
        typed_at=typed_at,
        installed_at=installed.at,
        first_status_at=status.at,
        ended_at=time.time(),
        received_mb=installed.received_mb - received_before,
    )


@dataclass(frozen=True, slots=True)
class Said:
    """One line of the command, when it came, and what the machine had received by then."""

    line: str
    at: float
    received_mb: float


def read_along(process: subprocess.Popen[str]) -> Iterator[Said]:
    """The command's lines until it ends; each is shown with the time since the first word."""
    assert process.stdout is not None
    began = time.time()
    for line in process.stdout:
        yield Said(line, time.time(), received_mb())
        print(f"{time.time() - began:7.1f} s  {line}", end="", flush=True)
    process.wait()


def reached_at(run: LaunchedRun) -> float:
    for line in run.evaluations:
        if line["accuracy"] >= GOAL:
            return line["at"]
    raise LookupError(f"{run.folder}: held-out accuracy {GOAL} was not reached")


def received_mb() -> float:
    """So far, by every interface but the loopback."""
    counted = psutil.net_io_counters(pernic=True)
    return sum(one.bytes_recv for name, one in counted.items() if name != "lo") / MB


def disk_mb(folder: Path) -> float:
    """Room taken on the disk; a file with several names counts once, a folder that nobody made takes none."""
    found: dict[int, int] = {}
    for path in folder.rglob("*"):
        facts = path.lstat()
        found[facts.st_ino] = 512 * facts.st_blocks
    return sum(found.values()) / MB


def headline(result: Result, case: str) -> str:
    def median(name: str) -> float:
        return result.median(case, name)

    moments = ("cloned", "installed", "first status line", "first rollout", "first step", f"accuracy {GOAL:g}")
    seconds = ", ".join(f"{name} {median(f'{name} (s)'):.0f} s" for name in moments)
    clone = median("history in the clone (MB)") + median("files in the clone (MB)")
    return (
        f"{seconds} after the first word; on the disk: clone {clone:.0f} MB, environment "
        f"{median('environment (MB)'):,.0f} MB, run {median('run folder (MB)'):.0f} MB"
    )


if __name__ == "__main__":
    main()
