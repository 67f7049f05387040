"""One JSON object a line: `{"prompt": …, "answer": …, …}`; other keys reach the reward as `meta`.

For: a user's own prompts. Lines are found by offset, so a large file is not held in memory parsed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from broker.errors import Misconfigured, Poison
from producers.prompt_sources.base import SourcePrompt
from producers.prompt_sources.rows import Rows


class Lines:
    def __init__(self, path: Path, prompt_field: str, answer_field: str) -> None:
        if not path.is_file():
            raise Misconfigured(f"[prompts] path = {path}: no such file; nothing was started; correct the path")
        self.path, self.prompt_field, self.answer_field = path, prompt_field, answer_field
        self.lines = [(number, line) for number, line in enumerate(path.read_bytes().splitlines(), 1) if line.strip()]

    def read(self, place: int) -> SourcePrompt:
        number, line = self.lines[place]
        try:
            row: Any = json.loads(line)
            meta = {key: value for key, value in row.items() if key not in (self.prompt_field, self.answer_field)}
            return SourcePrompt(text=row[self.prompt_field], answer=str(row.get(self.answer_field, "")), meta=meta)
        except (ValueError, AttributeError, KeyError, TypeError) as error:
            raise Poison(
                f'{self.path}:{number}: not a JSON object with "{self.prompt_field}" ({type(error).__name__}: {error}); '
                "the run stops before this prompt; correct or remove the line"
            ) from None


def make(
    *, seed: int, path: str, name: str = "jsonl", prompt_field: str = "prompt", answer_field: str = "answer", held_out: int = 0
) -> Rows:
    lines = Lines(Path(path).expanduser(), prompt_field, answer_field)
    return Rows(name, len(lines.lines), lines.read, seed=seed, held_out_rows=held_out)
