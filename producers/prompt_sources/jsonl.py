"""One JSON object a line: `{"prompt": …, "answer": …, …}`; other keys reach the reward as `meta`.

For: a user's own prompts. Every line is checked when the file is opened, so a bad one is told before anything starts;
the file is then read line by line by offset, and only offsets and digests are kept in memory.
"""

from __future__ import annotations

import json
from array import array
from pathlib import Path
from typing import Any

from broker.errors import Misconfigured, Poison
from producers.prompt_sources.base import SourcePrompt
from producers.prompt_sources.rows import Rows, digest
from producers.prompt_sources.template import checked, filled

TOLD = 3
"""Bad lines named in one message."""


class Lines:
    """A table; see `rows`."""

    def __init__(self, path: Path, prompt_field: str, answer_field: str, template: str) -> None:
        if not path.is_file():
            raise Misconfigured(
                f"[prompts] path = {path.absolute()}: no such file; nothing was started; correct the path"
            )
        self.path, self.prompt_field, self.answer_field = path.absolute(), prompt_field, answer_field
        self.template = checked(template)
        self.numbers, self.offsets = array("q"), array("q")
        self.digests: list[bytes] = []
        self.scan()

    def scan(self) -> None:
        """Find and check all lines; blank ones do not count. Raises Misconfigured naming those that do not parse."""
        bad: list[str] = []
        offset = 0
        with self.path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    try:
                        self.digests.append(digest(self.parse(line, number).text))
                        self.numbers.append(number)
                        self.offsets.append(offset)
                    except Poison as problem:
                        bad.append(str(problem))
                offset += len(line)
        if bad:
            more = f"\nand {len(bad) - TOLD} more lines" if len(bad) > TOLD else ""
            raise Misconfigured("\n".join(bad[:TOLD]) + more)
        if not self.digests:
            raise Misconfigured(
                f"[prompts] path = {self.path}: no line in it; nothing was started; name a file with data"
            )

    def read(self, row: int) -> SourcePrompt:
        with self.path.open("rb") as file:
            file.seek(self.offsets[row])
            return self.parse(file.readline(), self.numbers[row])

    def parse(self, line: bytes, number: int) -> SourcePrompt:
        """Raises Poison, naming file and line."""
        try:
            row: Any = json.loads(line)
        except ValueError as error:
            raise self.poison(number, f"no JSON ({error})") from None
        if not isinstance(row, dict) or self.prompt_field not in row:
            found = ", ".join(row) if isinstance(row, dict) else type(row).__name__
            raise self.poison(number, f'no field "{self.prompt_field}" (found: {found})')
        prompt = row.pop(self.prompt_field)
        if not isinstance(prompt, str) or not prompt:
            raise self.poison(number, f'"{self.prompt_field}" is {json.dumps(prompt)[:40]}, not a text')
        answer = row.pop(self.answer_field, None)
        return SourcePrompt(text=filled(self.template, prompt), answer=as_text(answer), meta=row)

    def poison(self, number: int, problem: str) -> Poison:
        return Poison(f"{self.path}:{number}: {problem}; no prompt of this file is used; correct or remove the line")


def as_text(answer: Any) -> str:
    """An answer as a rule compares it: text stays, nothing is empty, the rest is written as JSON."""
    if answer is None:
        return ""
    return answer if isinstance(answer, str) else json.dumps(answer)


def make(
    *,
    seed: int,
    path: str,
    eval_path: str = "",
    name: str = "jsonl",
    prompt_field: str = "prompt",
    answer_field: str = "answer",
    template: str = "{prompt}",
    held_out: int = 0,
) -> Rows:
    """`eval_path` names another file to measure on; without it, `held_out` prompts of the file itself are kept back."""

    def lines(where: str) -> Lines:
        return Lines(Path(where).expanduser(), prompt_field, answer_field, template)

    return Rows(name, lines(path), seed=seed, held_out=held_out, evaluation=lines(eval_path) if eval_path else None)
