"""What a handler is, and what becomes of a group when it fails.

For: the consuming loop (`consume`), and whoever writes a handler. Not for: settling what it answers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import structlog

from broker import codec
from broker.errors import Broken, Misconfigured, Poison
from broker.messages import Delivery, Group
from broker.outcomes import Bury, Forward, Outcome, Release, Retire

log = structlog.get_logger()


class Handler(Protocol):
    """Maps one delivery to one outcome; called concurrently, up to the loop's capacity."""

    async def __call__(self, delivery: Delivery, group: Group) -> Outcome: ...


async def answer(handle: Handler, delivery: Delivery, group: Group, max_attempts: int) -> Outcome:
    """The handler's outcome, or the one its error stands for. Broken and Misconfigured pass: they stop the process.
    A result that cannot travel is the group's matter, too.
    """
    try:
        return checked(delivery, await handle(delivery, group))
    except (Broken, Misconfigured):
        raise
    except Exception as error:  # noqa: BLE001  whatever a handler raises is about its group
        return outcome_of(error, delivery, max_attempts)


def checked(delivery: Delivery, outcome: Outcome) -> Outcome:
    """The outcome, its added part encoded. Raises Poison for what a handler answers and no reader would take."""
    if isinstance(outcome, Forward):
        return replace(outcome, added=codec.encode_added(delivery.stream, outcome.group))
    if isinstance(outcome, Retire) and outcome.group is not None:
        codec.encode_group(outcome.group)
    return outcome


def outcome_of(error: Exception, delivery: Delivery, max_attempts: int) -> Outcome:
    """Errors become outcomes here and nowhere else."""
    said = f"{type(error).__name__}: {error}"
    if isinstance(error, Poison):
        log.error("buried", group=delivery.entry.group, reason=said)
        return Bury(reason=said)
    if delivery.entry.attempt + 1 >= max_attempts:
        log.error("buried", group=delivery.entry.group, reason=said, attempts=delivery.entry.attempt + 1)
        return Bury(reason=f"{said} (attempt {delivery.entry.attempt + 1} of {max_attempts})")
    log.warning(
        "trying again", group=delivery.entry.group, reason=said, attempt=delivery.entry.attempt + 1, of=max_attempts
    )
    return Release(reason=said, failed=True)
