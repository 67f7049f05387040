"""Devices: counted without touching them, shared out evenly, and refused by name when they are not there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.errors import Misconfigured
from scheduler.devices import cores_named, gpus_of_the_machine, shared_out, visible_gpus

ROOT = Path(__file__).parents[2]


@pytest.fixture
def four_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose driver lists four GPUs, one of them divided."""
    lines = [f"GPU {n}: NVIDIA H200 (UUID: GPU-{n})" for n in range(4)]
    lines.insert(1, "  MIG 3g.71gb     Device  0: (UUID: MIG-0)")
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\ncat <<END\n" + "\n".join(lines) + "\nEND\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.usefixtures("four_gpus")
def test_gpus_are_those_the_driver_lists_unless_the_environment_names_some() -> None:
    assert visible_gpus({}) == ("0", "1", "2", "3")
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "3, 1"}) == ("3", "1")
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": ""}) == ()
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "-1"}) == ()
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "MIG-0"}) == ("MIG-0",)


@pytest.mark.usefixtures("four_gpus")
def test_a_gpu_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(Misconfigured, match=r"no GPU 4, 7; nothing was started; GPUs: 0,1,2,3"):
        visible_gpus({"CUDA_VISIBLE_DEVICES": "0,4,7"})


def test_a_driver_that_does_not_answer_leaves_the_device_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\nexit 9\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert gpus_of_the_machine() == len(list(Path("/dev").glob("nvidia[0-9]*")))


def test_counting_gpus_loads_no_library_that_could_make_a_context() -> None:
    code = (
        "import os, sys; from scheduler.devices import visible_gpus; visible_gpus(os.environ); "
        "print([name for name in ('torch', 'pynvml', 'vllm', 'cupy') if name in sys.modules])"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=30, check=True
    )
    assert said.stdout.strip() == "[]"


@given(st.integers(0, 64), st.integers(1, 64))
def test_every_slot_gets_as_many_gpus_and_none_is_given_twice(gpus: int, slots: int) -> None:
    shares = [share.split(",") if share else [] for share in shared_out([str(n) for n in range(gpus)], slots)]
    assert len(shares) == slots
    assert {len(share) for share in shares} == {gpus // slots}
    given_out = [gpu for share in shares for gpu in share]
    assert given_out == [str(n) for n in range(gpus // slots * slots)]


def test_cores_are_taken_as_named_and_unknown_ones_refused_with_those_there_are() -> None:
    assert cores_named("3, 1", {0, 1, 2, 3}) == (3, 1)
    assert cores_named("", {0, 1}) == ()
    with pytest.raises(Misconfigured, match=r"x, 9: no core of this machine; nothing was started; cores: 0,1"):
        cores_named("0,x,9", {0, 1})
