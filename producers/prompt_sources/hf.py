"""A Hugging Face data set saved on disk (`dataset.save_to_disk(path)`), one column for prompts, one for answers.

For: data that is already there. Not for: the hub: download first, then name the folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from broker.errors import Misconfigured
from producers.prompt_sources.base import SourcePrompt
from producers.prompt_sources.jsonl import as_text
from producers.prompt_sources.rows import Rows, digest
from producers.prompt_sources.template import checked, filled


class Columns:
    """A table; see `rows`."""

    def __init__(self, data: Any, where: str, prompt_field: str, answer_field: str, template: str) -> None:
        if prompt_field not in data.column_names:
            raise Misconfigured(
                f'{where} has no column "{prompt_field}"; nothing was started; set prompt_field to one of: '
                f"{', '.join(data.column_names)}"
            )
        self.data, self.prompt_field, self.answer_field = data, prompt_field, answer_field
        self.template = checked(template)
        self.digests: list[bytes] = []
        for row, prompt in enumerate(data[prompt_field]):
            if not isinstance(prompt, str) or not prompt:
                raise Misconfigured(
                    f'{where}, row {row}: "{prompt_field}" is {str(prompt)[:40]!r}, not a text; nothing was started; '
                    "filter such rows out, or apply the chat template, and save the data set again"
                )
            self.digests.append(digest(prompt))

    def read(self, row: int) -> SourcePrompt:
        fields: dict[str, Any] = dict(self.data[row])
        text, answer = filled(self.template, fields.pop(self.prompt_field)), fields.pop(self.answer_field, None)
        return SourcePrompt(text=text, answer=as_text(answer), meta=fields)


def make(
    *,
    seed: int,
    path: str,
    split: str = "train",
    eval_split: str = "",
    name: str = "hf",
    prompt_field: str = "prompt",
    answer_field: str = "answer",
    template: str = "{prompt}",
    held_out: int = 0,
) -> Rows:
    """`eval_split` names the split to measure on; without it, `held_out` prompts of `split` itself are kept back."""
    folder = Path(path).expanduser().absolute()
    saved = load(folder)

    def columns(wanted: str) -> Columns:
        return Columns(split_of(saved, wanted, folder), f"{folder} ({wanted})", prompt_field, answer_field, template)

    evaluation = columns(eval_split) if eval_split else None
    return Rows(name, columns(split), seed=seed, held_out=held_out, evaluation=evaluation)


def load(folder: Path) -> Any:
    if not folder.is_dir():
        raise Misconfigured(
            f"[prompts] path = {folder}: no such folder; nothing was started; save the data set there with save_to_disk"
        )
    from datasets import load_from_disk

    try:
        return load_from_disk(str(folder))
    except (OSError, ValueError) as error:
        raise Misconfigured(
            f"[prompts] path = {folder}: no saved data set ({error}); nothing was started; save one there with "
            "save_to_disk"
        ) from error


def split_of(saved: Any, wanted: str, folder: Path) -> Any:
    """A data set without splits is its own `train`."""
    from datasets import DatasetDict

    splits = saved if isinstance(saved, DatasetDict) else {"train": saved}
    if wanted not in splits:
        raise Misconfigured(
            f'{folder} has no split "{wanted}"; nothing was started; its splits: {", ".join(map(str, splits))}'
        )
    return splits[wanted]
