"""Which of the deliveries in a trainer's hands are work: those that the open set names, with a body to train on.

For: telling them from strangers' entries. Not for: which of them make a batch (`batching`), or taking entries out
(`broker.redis_refusal`). A stranger's entry may bear an open group's name; it must not take the place of the group's
own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from broker.contract import OpenGroup
from broker.messages import Delivery, Group
from broker.redis_refusal import STRANGE, refuse
from broker.redis_trainer import RedisTrainer

UNSCORED = "its body has no scores, so it cannot be trained on"


def is_live(one: Delivery, opened: Mapping[str, OpenGroup]) -> bool:
    """Whether this very entry is the one that its group has."""
    line = opened.get(one.entry.group)
    return line is not None and (line.stream, line.entry_id) == (one.stream, one.entry_id)


async def only_live(
    broker: RedisTrainer, deliveries: Sequence[Delivery], opened: Mapping[str, OpenGroup]
) -> dict[str, Delivery]:
    """Group → its delivery. The others were settled meanwhile, or nobody forwarded them: then they are refused."""
    for one in deliveries:
        if not is_live(one, opened):
            await refuse(broker.connection, one.stream, one.entry_id, STRANGE)
    return {one.entry.group: one for one in deliveries if is_live(one, opened)}


async def trainable(broker: RedisTrainer, deliveries: Sequence[Delivery]) -> list[Group]:
    """The bodies of these deliveries, fewer than there are when one cannot be trained on: that group is buried."""
    found: list[Group] = []
    for one, body in zip(deliveries, await broker.bodies(deliveries), strict=True):
        if body is not None and body.scores is None:
            await refuse(broker.connection, one.stream, one.entry_id, UNSCORED)
        elif body is not None:
            found.append(body)
    return found
