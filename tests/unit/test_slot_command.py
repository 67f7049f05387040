"""A container's slot takes the GPU of its number, and none that is another's or not there."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "deploy" / "images" / "bin" / "slot.sh"

Started = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def started(tmp_path: Path) -> Started:
    """The script beside programs that say what it asks of them: a driver that lists GPUs, and a worker's command."""

    def program(name: str, script: str) -> None:
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)

    def start(place: str, gpus: int = 0, **said: str) -> subprocess.CompletedProcess[str]:
        lines = [f"GPU {n}: NVIDIA H200 (UUID: GPU-{n})\n  MIG 3g.71gb Device 0: (UUID: MIG-{n})" for n in range(gpus)]
        program("nvidia-smi", "\n".join(["cat <<END", *lines, "END"]) if gpus else "exit 9")
        program("celery", 'echo "${CUDA_VISIBLE_DEVICES-none}" "$@"')
        around = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "TIDEMILL_PLACE": place, **said}
        return subprocess.run([SCRIPT], env=around, capture_output=True, text=True, timeout=20, check=False)

    return start


def test_a_slot_takes_the_gpu_of_its_number(started: Started) -> None:
    for number in (1, 2, 4):
        said = started(f"slot-{number}", gpus=4).stdout.split()
        assert said[0] == str(number - 1)
        assert said[said.index("--slot") + 1] == f"slot-{number}"


def test_one_for_which_no_gpu_is_left_does_not_start_and_says_what_to_ask_for(started: Started) -> None:
    refused = started("slot-5", gpus=4)
    assert refused.returncode == 2
    assert not refused.stdout
    assert "slot-5 has no GPU: 4 can be seen here" in refused.stderr
    assert "--scale slot=4" in refused.stderr


def test_whoever_is_given_gpus_by_name_keeps_them(started: Started) -> None:
    assert started("slot-5", gpus=1, CUDA_VISIBLE_DEVICES="0").stdout.startswith("0 ")


def test_without_gpus_any_number_of_slots_starts_and_the_first_trains(started: Started) -> None:
    first, tenth = started("slot-1").stdout.split(), started("slot-10").stdout.split()
    assert first[0] == tenth[0] == "none"
    assert [said[said.index("--initial-pool") + 1] for said in (first, tenth)] == ["train", "rollout"]
