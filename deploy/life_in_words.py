"""A group's life as a person reads it.

For: what `tidemill show` prints. Not for: the facts (`life`).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from deploy.life import Life
from deploy.plain_text import plain

LONGEST = 2000
"""Characters of a text that are shown; --json has all."""


def words(life: Life, run: str) -> Iterator[str]:
    """Line after line, without markup."""
    yield f"{life['group']} · {life.get('kind', '')} · {headline(life)}"
    yield ""
    if "prompt" in life:
        yield f"prompt ({life['task'] or 'no task'}): {cut(life['prompt'])}"
    if life.get("answer"):
        yield f"right answer: {cut(life['answer'])}"
    if "floor" in life:
        bounds = f"admitted at version {life['floor']}, may train until {life['last_version']}"
        yield f"{bounds}; {life['attempt'] or 'no'} failed attempt{'s' if life['attempt'] != 1 else ''}"
    yield ""
    for index, sibling in enumerate(life.get("siblings", [])):
        yield from sibling_words(index, sibling)
    yield "the way:"
    for stay in life["way"]:
        at = "" if stay["at"] is None else f"{datetime.fromtimestamp(stay['at'], UTC):%H:%M:%S.%f}"[:-3]
        took = "" if stay["seconds"] is None else f"{stay['seconds']:9.3f} s"
        yield f"  {at:12} {stay['stream']:9}{took:>12}  {stay['reader']:18} {stay['what']}".rstrip()
    if life.get("unasked"):
        yield ""
        yield f"from the archive alone: {life['unasked']}"
    yield from next_words(life, run)


def headline(life: Life) -> str:
    if life["state"] == "trained":
        late = "" if life["staleness"] is None else f", staleness {life['staleness']}"
        return f"trained into version {life['version']}{late}"
    if life["state"] == "open":
        return f"open at {life['stream']}" if life["stream"] else f"open; {life['reason']}"
    return f"{life['state']}: {life['reason']}"


def sibling_words(index: int, sibling: dict[str, Any]) -> Iterator[str]:
    spans = ", ".join(f"v{one['version']} {one['start']}–{one['end']}" for one in sibling["spans"])
    yield f"[{index}] {cut(sibling['text'])}"
    told = [f"{sibling['actions']} actions ({spans})", f"ended by {sibling['finish']}"]
    if sibling["reward"] is not None:
        parts = ", ".join(f"{name} {value:g}" for name, value in sibling["parts"].items())
        told.append(f"reward {sibling['reward']:g}" + (f" ({parts})" if parts else ""))
    if sibling["advantage"] is not None:
        told.append(f"advantage {sibling['advantage']:+g}")
    yield f"    {' · '.join(told)}"


def next_words(life: Life, run: str) -> Iterator[str]:
    """What to type next."""
    if "dead_line" in life:
        yield ""
        yield f"try it again: tidemill inspect dead replay {life['group']} --run {run}"
        yield f"give it up:   tidemill inspect dead drop {life['group']} --run {run}"


def cut(text: str) -> str:
    shown = text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({len(text) - LONGEST} more characters)"
    return plain(shown).replace("\n", "\n    ")
