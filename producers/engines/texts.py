"""What a person reads of sampled token ids.

For: the `texts` of rollouts. Not for: encoding prompts (the feeder's), nor for anything that is encoded again.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

from broker.errors import Misconfigured
from broker.messages import Actions


class Reader:
    """Decodes with the model folder's tokenizer, leaving out its special tokens."""

    def __init__(self, folder: Path) -> None:
        """Raises Misconfigured when the folder has no `tokenizer.json`."""
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise Misconfigured(
                f"{folder} has no tokenizer.json, so nobody could read what the model answers; nothing was started; "
                f"save the "
                "model's fast tokenizer there (tokenizer.save_pretrained)"
            )
        self.tokenizer = Tokenizer.from_file(str(path))
        self.vocabulary = self.tokenizer.get_vocab_size()

    def __call__(self, siblings: Sequence[Actions]) -> tuple[str, ...]:
        """(G,) texts of the siblings' token ids."""
        return tuple(self.tokenizer.decode(each.tolist()) for each in siblings)

    def encode(self, text: str) -> list[int]:
        """Token ids of a plain text, without special tokens."""
        return self.tokenizer.encode(text, add_special_tokens=False).ids
