"""Whether the slots that a run asks for can be, before anything starts; each refusal has both numbers.

For: `tidemill run` and `resume` with slots. Not for: one section alone, or what a worker may host
(`scheduler.hosting`). How many slots there can be: where GPUs can be seen one a GPU; on cores as many as a person says,
for they are only processes (they take turns, and a warning says so); scripted models need neither.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from broker.errors import Misconfigured
from consumers.settings import needs_judge
from deploy.run_settings import RunSettings
from scheduler.devices import visible_gpus
from scheduler.pools import check_fleet, check_split, pools_in_use

SCRIPTED = "scripted"
TRAINER = "consumers trainer"


def check_slots(settings: RunSettings) -> None:
    """For the GPUs that can be seen here. Raises Misconfigured."""
    check(settings, visible_gpus(os.environ))


def check(settings: RunSettings, gpus: Sequence[str]) -> None:
    """The same, where these GPUs can be seen."""
    slots = settings.scheduler.slots
    pools = pools_in_use(settings.pools, judged=needs_judge(settings.reward))
    check_fleet(pools, slots, len(gpus) if gpus and computes(settings) else None)
    check_split(pools, slots, settings.scheduler.split)
    for pool in pools:
        if pool.command == TRAINER and pool.max != 1:
            most = "no limit" if pool.max is None else f"max = {pool.max}"
            raise Misconfigured(
                f"[pools.{pool.name}] {most}: of two trainers the newer would end the older; nothing was started; "
                f"set pools.{pool.name}.max = 1 (its ranks share one slot: train.ranks)"
            )


def computes(settings: RunSettings) -> bool:
    """Whether a slot's work needs a device."""
    return settings.rollout.engine != SCRIPTED or settings.train.learner != SCRIPTED
