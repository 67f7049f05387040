"""A comparison of two rewards as a person reads it.

For: what `tidemill rescore` prints. Not for: the numbers (`rescore`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from deploy.closing import end_of, one_line


def words(found: dict[str, Any]) -> Iterator[str]:
    """Line after line, without markup."""
    named = " + ".join(f"{part['weight']:g}·{part['name']}" for part in found["reward"])
    yield f"{found['completions']} completions of {found['groups']} groups of {found['run']}, scored by {named}"
    for reason, groups in found["failed"].items():
        yield f"not scored: {groups} groups: {reason}"
    yield ""
    yield f"{'':28}{'as recorded':>12}{'now':>12}"
    yield row("mean reward", found["mean"])
    yield row("standard deviation", found["deviation"])
    yield row("groups with signal", found["groups_with_signal"])
    for part in found["parts"]:
        alike = "" if part["correlation"] is None else f"   correlation {part['correlation']:.3f}"
        yield row(f"part {part['part']}", part) + alike
    yield ""
    yield f"correlation {number(found['correlation'])} · changed {percent(found['changed'])} of completions"
    yield f"in {percent(found['groups_with_another_best'])} of groups the best completion is another one"
    if found["examples"]:
        yield ""
        yield "differ most:"
    for one in found["examples"]:
        yield f"  {one['before']:g} → {one['after']:g}   {one['group']} [{one['sibling']}]"
        yield f"      {end_of(one['prompt'])} │ {one_line(one['text'])}"


def row(name: str, values: dict[str, Any]) -> str:
    return f"{name:28}{number(values['before']):>12}{number(values['after']):>12}"


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


def percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"
