"""From a prompt group to its rollouts: the handler of the `prompts` stream.

For: one group through the gate and the engine. Not for: streams (`broker.consume`), weights (`weight_follower`).
"""

from __future__ import annotations

import structlog
from structlog.contextvars import bind_contextvars

from broker.messages import Delivery, Group
from broker.outcomes import Forward, Outcome
from broker.telemetry import Meter
from producers.engines.base import Engine
from producers.weight_follower import WeightFollower

log = structlog.get_logger()


class RolloutProducer:
    """Handler: see `broker.consume.Handler`."""

    def __init__(self, engine: Engine, follower: WeightFollower, meter: Meter) -> None:
        self.engine = engine
        self.follower = follower
        self.meter = meter
        meter.shares.half_at = float(getattr(engine, "half_at", 0.0))  # an engine that knows it says so

    async def __call__(self, delivery: Delivery, group: Group) -> Outcome:
        async with self.follower.serving(delivery.entry):
            bind_contextvars(version=self.meter.version)  # of this group's task
            rollouts = await self.engine.generate(group)
        if self.meter.tokens == 0:
            log.info("first rollouts", group=group.id)
        self.meter.tokens += len(rollouts.logprobs)
        return Forward(group=group.with_rollouts(rollouts))
