"""The benchmark of parallel against central controllers runs, and its processes do the work it reports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(90)
def test_both_architectures_carry_the_offered_groups_and_leave_no_process(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.controllers", "--quick", "--sizes", "1", "--controllers", "1", "4"]
    command += ["--paces", "paced", "--out", str(tmp_path)]
    own = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(command, cwd=ROOT, env=own, capture_output=True, text=True, timeout=80, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "controllers.json").read_text())
    assert len(found["samples"]) == 4
    for name, _, _, _, number in found["settings"]["cases"]:
        figures = {figure: numbers[0] for figure, numbers in found["samples"][name].items()}
        offered = 20 * ((number + 1) // 2)
        assert 0 < figures["groups_per_s"] < 1.8 * offered, name
        assert 0 < figures["handover_p50_ms"] <= figures["handover_p99_ms"], name
        assert figures["busiest_share"] >= figures["middle_share"], name
        assert figures["busiest_mb"] > 1, name
        assert found["settings"]["busiest"][name], name
    deadline = time.monotonic() + 10
    while living(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not living(tmp_path)


def living(folder: Path) -> list[psutil.Process]:
    """Processes that keep their files under `folder`: those the benchmark started, whatever they forked."""
    return [one for one in psutil.process_iter(["environ"]) if (one.info["environ"] or {}).get("TMPDIR") == str(folder)]
