"""Tasks of the reasoning-gym package, made on the spot; its own scorer is the reward of the same name.

For: more than a hundred kinds of problems with verifiable answers. `meta` carries the task and entry the scorer needs.
"""

from __future__ import annotations

import json
from typing import Any

from broker.errors import Misconfigured
from producers.prompt_sources.base import SourcePrompt
from producers.prompt_sources.rows import Rows


def make(*, seed: int, task: str, size: int = 10_000, name: str = "", held_out: int = 256, **options: Any) -> Rows:
    try:
        import reasoning_gym
    except ImportError as error:
        raise Misconfigured(f"[prompts] source reasoning_gym: {error}; nothing was started; install the reasoning-gym package") from error
    data = reasoning_gym.create_dataset(task, size=size + held_out, seed=seed, **options)

    def read(place: int) -> SourcePrompt:
        item = data[place]
        entry = {"question": item["question"], "answer": item["answer"], "metadata": item["metadata"]}
        return SourcePrompt(text=item["question"], answer=str(item["answer"]), meta={"task": task, "entry": json.dumps(entry, default=str)})

    return Rows(name or task, size + held_out, read, seed=seed, held_out_rows=held_out)
