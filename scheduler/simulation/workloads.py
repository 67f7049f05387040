"""The workloads that are shipped, by name."""

from __future__ import annotations

import difflib

from broker.errors import Misconfigured
from scheduler.simulation.workload import Workload

WORKLOADS = {
    load.name: load
    for load in (
        Workload(name="constant", about="responses of 2k tokens, all the run", length=((0, 2), (1, 2)), spread=0.2),
        Workload(
            name="drift",
            about="responses grow from 1k to 8k tokens; training costs 0.1·L + 0.05·L² of a rollout's unit",
            length=((0, 1), (1, 8)),
            train=(0.3, 0.15),
            spread=0.3,
        ),
        Workload(
            name="sublinear",
            about="as drift, and a training step on twice the slots is only 1.74 times as fast",
            length=((0, 1), (1, 8)),
            train=(0.3, 0.15),
            spread=0.3,
            scaling=0.8,
        ),
        Workload(
            name="surge",
            about="1k tokens for the first third, 8k in the second, 1k again",
            length=((0, 1), (0.3, 1), (0.36, 8), (0.64, 8), (0.7, 1), (1, 1)),
        ),
        Workload(
            name="judge-heavy",
            about="a generative judge whose verdicts grow with the responses",
            length=((0, 1), (1, 6)),
            judge=(6.0, 0.0),
            train=(0.3, 0.15),
        ),
        Workload(
            name="heavy-tail",
            about="responses of 2k tokens, some sixteen times as long",
            length=((0, 2), (1, 2)),
            spread=1.0,
            staleness=4,
        ),
        Workload(
            name="dynamic-sampling",
            about="groups without a signal are dropped after scoring; 90 % survive at first, 25 % at the end",
            length=((0, 2), (1, 2)),
            surviving=((0, 0.9), (1, 0.25)),
            train=(1.5, 0.3),
        ),
        Workload(
            name="failures",
            about="every slot fails once in five hours and is away for five minutes",
            length=((0, 2), (1, 4)),
            failures_per_slot_hour=0.2,
        ),
    )
}


def workload_named(name: str) -> Workload:
    """Raises Misconfigured with the names there are."""
    if name not in WORKLOADS:
        near = difflib.get_close_matches(name, WORKLOADS, n=1)
        meant = f'did you mean "{near[0]}"? ' if near else ""
        raise Misconfigured(
            f'"{name}" is no workload; nothing was simulated; {meant}workloads: {", ".join(WORKLOADS)}, all'
        )
    return WORKLOADS[name]
