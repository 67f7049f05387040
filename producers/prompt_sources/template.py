"""A prompt's text around the data's own: `Question: {prompt}\\nAnswer:`.

For: sources whose data is bare questions. Not for: chat templates of a model folder (write the result of one here).
"""

from __future__ import annotations

from broker.errors import Misconfigured

HOLE = "{prompt}"


def checked(template: str) -> str:
    """Raises Misconfigured for a template that would drop the prompt."""
    if HOLE not in template:
        raise Misconfigured(
            f"[prompts] template = {template!r} has no {HOLE}, so every prompt would be the same; nothing was "
            f"started; write {HOLE} where the prompt belongs"
        )
    return template


def filled(template: str, prompt: str) -> str:
    return template.replace(HOLE, prompt)
