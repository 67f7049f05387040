"""A run of ours handed to TRL: the environment it runs in, the task as a file, and the moments it tells.

For: `against_trl`. Not for: what TRL does with it (`peers/trl_grpo.py`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.run_check import saved_run
from producers.encoding import Encoder
from producers.prompt_sources import create_sources
from producers.prompt_sources.base import SourcePrompt

PEERS = Path(__file__).parent / "peers"
ENVIRONMENT = Path(__file__).parent.parent / "build" / "peers" / "trl"
LONGEST_S = 3600.0
"""A peer that takes longer is ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerRun:
    """What a peer told; moments are seconds since 1970."""

    started_at: float
    began_at: float
    """Of the first step."""
    steps: Sequence[tuple[int, float]]
    """(step, when it was done, without the time spent on measuring accuracy)."""
    accuracies: Sequence[tuple[float, float]]
    """(accuracy, when the measured step was done, on the same clock)."""


def environment() -> Path:
    """The peer's Python; made when it is not there or its requirements have changed."""
    wanted, made = (PEERS / "trl.txt").read_text(), ENVIRONMENT / "made-from.txt"
    python = ENVIRONMENT / "bin" / "python"
    if not made.is_file() or made.read_text() != wanted:
        import torch

        print("making the peer's environment, once: some minutes", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", ENVIRONMENT], check=True)
        install = [python, "-m", "pip", "install", "--quiet"]
        subprocess.run([*install, f"torch=={torch.__version__}"], check=True)  # the same build as ours, or none
        subprocess.run([*install, "--requirement", PEERS / "trl.txt"], check=True)
        made.write_text(wanted)
    return python


def peer_run(python: Path, folder: Path, *, steps: int, rows: int, stop_at: float, skip_dead: bool) -> PeerRun:
    """Train the run of `folder` with TRL. Raises RuntimeError when it fails."""
    task = folder / "trl.json"
    task.write_text(json.dumps(task_of(folder, steps, rows=rows, stop_at=stop_at, skip_dead=skip_dead)))
    started_at = time.time()
    done = subprocess.run(
        [python, PEERS / "trl_grpo.py", task],
        check=False,
        env={**os.environ, "OMP_WAIT_POLICY": "PASSIVE", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"},
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
    )
    if done.returncode:
        raise RuntimeError(f"TRL ended with exit code {done.returncode}; it said:\n{done.stderr[-4000:]}")
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"event"')]
    return moments(told, started_at)


def moments(told: Sequence[dict[str, Any]], started_at: float) -> PeerRun:
    """The peer's lines, with the time for measuring accuracy taken out."""
    net = [{**line, "at": line["at"] - line.get("evaluating_s", 0.0)} for line in told]
    done = {line["step"]: line["at"] for line in net if line["event"] == "step"}
    return PeerRun(
        started_at=started_at,
        began_at=next(line["at"] for line in net if line["event"] == "begin"),
        steps=list(done.items()),
        accuracies=[(line["accuracy"], done[line["step"]]) for line in net if line["event"] == "accuracy"],
    )


def task_of(folder: Path, steps: int, *, rows: int, stop_at: float, skip_dead: bool) -> dict[str, Any]:
    """The run's settings in the peer's words; prompts and held-out prompts are written beside it, in our order."""
    settings = saved_run(folder)
    sources = create_sources(settings.prompts, seed=settings.run.seed)
    count = settings.train.groups * steps
    train = settings.train
    return {
        "model": str(folder / "model"),
        "prompts": written(folder, "trl-prompts.jsonl", [sources.at(cursor).prompt for cursor in range(count)]),
        "held_out": written(
            folder, "trl-held-out.jsonl", [one.prompt for one in sources.held_out(settings.prompts.eval.size)]
        ),
        "evaluate_every": settings.prompts.eval.every if settings.prompts.eval.size else 0,
        "stop_at": stop_at,
        "reward": settings.reward.parts[0].name,
        "groups": train.groups,
        "group_size": settings.rollout.group_size,
        "max_tokens": settings.rollout.max_tokens,
        "rows": rows,
        "steps": steps,
        "seed": settings.run.seed,
        "threads": len(os.sched_getaffinity(0)),
        "skip_dead": skip_dead,
        "lr": train.lr,
        "betas": list(train.betas),
        "weight_decay": train.weight_decay,
        "grad_clip": train.grad_clip,
        "warmup_steps": train.warmup_steps,
        "clip": settings.algorithm.clip,
        "lora": train.lora.model_dump() if train.lora else None,
    }


def written(folder: Path, name: str, prompts: Sequence[SourcePrompt]) -> str:
    """The prompts as texts that say every token, the begin token too. Raises RuntimeError for one that does not."""
    encoder = Encoder(folder / "model")
    begin = "" if encoder.begin is None else str(encoder.tokenizer.id_to_token(encoder.begin))
    with (folder / name).open("w") as file:
        for prompt in prompts:
            text = begin + prompt.text
            if encoder.encode(text).tolist() != encoder.context_of(prompt.text).tolist():
                raise RuntimeError(f"{text!r} does not read as the tokens that Tidemill's feeder makes of it")
            file.write(json.dumps({"prompt": text, "answer": prompt.answer}) + "\n")
    return str(folder / name)
