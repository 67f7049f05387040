"""A feeder that refills a batch in waves, as loops that take turns do: `main` is its process.

For: `dynamic_sampling`, in place of the product's feeder and before the same processes. Not for: training anything; the
product admits a group as soon as a place is free. A wave is what a batch still lacks. It is sampled and filtered whole
before the next one is asked for. Where the open set holds more than one batch, the next batch is gathered, in waves
too, while the trainer trains.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from pathlib import Path

import structlog

from broker.entering import entered
from broker.redis_broker import RedisBroker
from broker.role_process import beating, command, leave, loaded
from broker.settings import BrokerSection, RunSection, broker_url, load_section, run_folder_settings
from broker.telemetry import Meter
from producers.feeder import Feeding
from producers.prompt_groups import PromptGroups
from producers.settings import PromptsSection, RolloutSection

log = structlog.get_logger()

ENTER_S = 60.0
LOOK_S = 0.003
"""Between looks at a wave, far below the feeder's own pause, so that waves lose nothing to it."""


@dataclass(slots=True)
class Waves(Feeding):
    """One stay in the run."""

    batch: int = 1
    """B, groups per version."""
    cap: int = 1
    """Most open groups."""

    async def admit(self) -> bool:
        """Offer what the batch lacks once all that was offered before is sampled and scored; whether it was."""
        backlog = await self.broker.backlog()
        if backlog["prompts"] or backlog["rollouts"]:
            return False
        survivors = len((await self.broker.books()).open)
        offered = self.groups.training(self.cursor, missing(survivors, self.batch, self.cap))
        if not offered:
            return False
        answer = await self.broker.admit(self.cursor, self.groups.cursor_value(self.cursor + len(offered)), offered)
        moved = answer.cursor != self.cursor
        self.cursor = answer.cursor
        self.count(answer.admitted)
        log.info("wave", groups=answer.admitted, survivors=survivors)
        return moved

    async def pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.stop.wait(), min(seconds, LOOK_S))


def missing(survivors: int, batch: int, cap: int) -> int:
    """Groups that the batch being gathered lacks, with so many scored and not yet trained.

    >>> [missing(survivors, 8, 8) for survivors in (0, 5, 8)]
    [8, 3, 0]
    >>> [missing(survivors, 8, 16) for survivors in (0, 5, 8, 15, 16)]
    [8, 3, 8, 1, 0]
    """
    return 0 if survivors >= cap else batch - survivors % batch


async def feed(folder: Path, name: str, stop: asyncio.Event) -> None:
    """Until the run is over."""
    raw = run_folder_settings(folder)
    meter = Meter(stage="reading prompts")
    broker = await RedisBroker.connect(broker_url(load_section(BrokerSection, "broker", raw["broker"])), folder.name)
    async with beating(broker, name, "feeder", meter):
        run = load_section(RunSection, "run", raw["run"])
        prompts = load_section(PromptsSection, "prompts", raw["prompts"])
        rollout = load_section(RolloutSection, "rollout", raw["rollout"])
        groups = await loaded(stop, PromptGroups.of, folder / "model", run, prompts, rollout)
        state = await entered(broker, stop, ENTER_S)
        if state is not None:
            await Waves(broker, groups, meter, stop, batch=state.groups, cap=state.cap).run()
    await broker.close()


def main() -> None:
    """`feeder --run DIR --name NAME`, as the product's own."""
    leave(command("benchmarks.wave_feeder", {"feeder": feed}))
