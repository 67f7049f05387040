"""What is imported ahead of need is all that a role imports: after it, loading a real model imports nothing heavy."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from deploy.run_check import load_run
from deploy.run_folder import new_run_folder

HEAVY = ("torch", "transformers", "deepspeed", "vllm", "tokenizers", "safetensors", "peft", "triton")

LATE = """
import json, os, sys
from pathlib import Path

command, folder = sys.argv[1], Path(sys.argv[2])
from scheduler.spare import preload
from broker.settings import load_section, run_folder_settings

raw = run_folder_settings(folder)
preload(folder, [command])
before = set(sys.modules)
if command == "producers rollout":
    from producers.engines import create
    from producers.settings import RolloutSection
    create("auto", folder / "model", load_section(RolloutSection, "rollout", raw["rollout"]), seed=0)
elif command == "consumers trainer":
    from consumers.trainer_start import learner_of
    learner_of(folder, raw)
import torch
print(json.dumps({"late": sorted(set(sys.modules) - before), "cuda": torch.cuda.is_initialized()}))
sys.stdout.flush()
os._exit(0)
"""


@pytest.mark.parametrize("command", ["producers rollout", "consumers trainer"])
def test_after_it_a_role_imports_next_to_nothing_and_no_gpu_was_touched(command: str, tmp_path: Path) -> None:
    from consumers.policies import tiny_llama

    folder = new_run_folder(load_run("addition", []), tmp_path / "runs", datetime.now(UTC)).resolve()
    (folder / "model").mkdir()
    tiny_llama.build(folder / "model", dtype="float32", seed=0)
    done = subprocess.run(
        [sys.executable, "-c", LATE, command, str(folder)], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    late = [name for name in found["late"] if name.partition(".")[0] in HEAVY]
    assert len(late) <= 3, late
    assert found["cuda"] is False


@pytest.mark.parametrize("command", ["producers rollout", "consumers trainer", "consumers judge"])
def test_a_fleet_that_computes_nothing_preloads_nothing_heavy(command: str, tmp_path: Path) -> None:
    folder = new_run_folder(load_run("paced", []), tmp_path / "runs", datetime.now(UTC)).resolve()
    code = (
        "import sys; from pathlib import Path; from scheduler.spare import HEAVY, preload; "
        f"preload(Path({str(folder)!r}), [{command!r}]); print(*(name for name in HEAVY if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []
