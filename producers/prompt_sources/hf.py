"""A Hugging Face data set saved on disk (`dataset.save_to_disk(path)`), one column for prompts, one for answers.

For: data that is already there. Not for: the hub: download first, then name the folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from broker.errors import Misconfigured
from producers.prompt_sources.base import SourcePrompt
from producers.prompt_sources.rows import Rows


def make(
    *,
    seed: int,
    path: str,
    split: str = "train",
    name: str = "hf",
    prompt_field: str = "prompt",
    answer_field: str = "answer",
    held_out: int = 0,
) -> Rows:
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise Misconfigured(f"[prompts] path = {folder}: no such folder; nothing was started; save the data set there with save_to_disk")
    from datasets import load_from_disk

    data: Any = load_from_disk(str(folder))
    data = data[split] if hasattr(data, "keys") else data
    if prompt_field not in data.column_names:
        raise Misconfigured(f'{folder} has no column "{prompt_field}"; nothing was started; its columns: {", ".join(data.column_names)}')

    def read(place: int) -> SourcePrompt:
        row = data[place]
        meta = {key: value for key, value in row.items() if key not in (prompt_field, answer_field)}
        return SourcePrompt(text=str(row[prompt_field]), answer=str(row.get(answer_field, "")), meta=meta)

    return Rows(name, len(data), read, seed=seed, held_out_rows=held_out)
