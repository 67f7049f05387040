"""Whether the slots that a run asks for can be, before anything starts; each refusal has both numbers.

For: `tidemill run` and `resume` with slots. Not for: one section alone, or what a worker may host
(`scheduler.hosting`). How many slots there can be: where GPUs can be seen one a GPU; on cores a few a core, which take
turns (a warning says so); where models are scripted and only sleep, many more, for each is still some processes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from broker.errors import Misconfigured
from consumers.settings import needs_judge
from deploy.cores import usable_here
from deploy.run_settings import RunSettings
from scheduler.devices import visible_gpus
from scheduler.pools import Room, check_fleet, check_split, in_words, pools_in_use

SCRIPTED = "scripted"
TRAINER = "consumers trainer"
COMPUTING_A_CORE = 4
"""Slots that compute and take turns on a core: more would have their work taken for stuck."""
SLEEPING_A_CORE = 64
"""Slots of scripted models: a worker and a controller each, which wake up ever so often."""


def check_slots(settings: RunSettings) -> None:
    """For the GPUs that can be seen and the cores that can be used here. Raises Misconfigured."""
    check(settings, visible_gpus(os.environ), usable_here().count)


def check(settings: RunSettings, gpus: Sequence[str], cores: int) -> None:
    """The same, where there are these."""
    slots = settings.scheduler.slots
    pools = pools_in_use(settings.pools, judged=needs_judge(settings.reward))
    check_fleet(pools, slots, room(len(gpus), cores, computing=computes(settings)))
    check_split(pools, slots, settings.scheduler.split)
    for pool in pools:
        if pool.command == TRAINER and pool.max != 1:
            most = "no limit" if pool.max is None else f"max = {pool.max}"
            raise Misconfigured(
                f"[pools.{pool.name}] {most}: of two trainers the newer would end the older; nothing was started; "
                f"set pools.{pool.name}.max = 1 (its ranks share one slot: train.ranks)"
            )


def room(gpus: int, cores: int, *, computing: bool) -> Room:
    """For slots whose work needs a device, or only sleeps."""
    if gpus and computing:
        why = f"{in_words(gpus, 'GPU')} can be seen here, each slot needs one"
        return Room(slots=gpus, why=why, instead="without any (CUDA_VISIBLE_DEVICES=) slots work on cores")
    each = COMPUTING_A_CORE if computing else SLEEPING_A_CORE
    return Room(slots=each * cores, why=f"{in_words(cores, 'core')} can be used here, for {each} slots each at most")


def computes(settings: RunSettings) -> bool:
    """Whether a slot's work needs a device."""
    return settings.rollout.engine != SCRIPTED or settings.train.learner != SCRIPTED
