"""`python -m consumers reward|judge|trainer|rank --run DIR`: wiring only.

For: one role's process on a run folder. Not for: decisions. Torch and DeepSpeed are imported by the learner, a model by
its judge.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import structlog

from broker.archive import archive_of
from broker.consume import Consuming, Rules, consume
from broker.errors import Misconfigured
from broker.metrics_endpoint import measured
from broker.redis_broker import RedisBroker
from broker.role_process import beating, command, leave, loaded
from broker.settings import BrokerSection, RunSection, broker_url, load_section, run_folder_settings
from broker.streams import ROLLOUTS
from broker.telemetry import Meter
from consumers.preload import preload
from consumers.settings import AlgorithmSection, RewardSection, needs_judge

log = structlog.get_logger()


async def reward(folder: Path, name: str, stop: asyncio.Event) -> None:
    """Rules on a CPU. Raises Misconfigured where a part needs a slot: then all groups are scored by judges."""
    settings = load_section(RewardSection, "reward", run_folder_settings(folder)["reward"])
    if needs_judge(settings):
        named = ", ".join(part.name for part in settings.parts if part.on == "slot")
        raise Misconfigured(
            f"[reward] parts: {named} needs a slot, so this run is scored by judges alone; nothing is scored here; "
            "start `python -m consumers judge` instead"
        )
    await score(folder, name, stop, role="reward")


async def judge(folder: Path, name: str, stop: asyncio.Event) -> None:
    """Judges on a slot, and the rules beside them in worker processes."""
    await score(folder, name, stop, role="judge")


async def score(folder: Path, name: str, stop: asyncio.Event, *, role: str) -> None:
    """A run's reward and the consuming loop of `rollouts`."""
    from consumers.algorithms import create as create_algorithm
    from consumers.reward_consumer import RewardConsumer
    from consumers.rewards import create as create_reward

    raw = run_folder_settings(folder)
    broker_settings = load_section(BrokerSection, "broker", raw["broker"])
    algorithm = load_section(AlgorithmSection, "algorithm", raw["algorithm"])
    meter = Meter(stage="importing")
    broker = await RedisBroker.connect(broker_url(broker_settings), folder.name)
    archive = archive_of(folder, name, load_section(RunSection, "run", raw["run"]))
    async with beating(broker, name, role, meter), measured(folder, raw, name, role, meter):
        await loaded(stop, preload, role, folder, raw)
        log.info("imported")
        meter.stage = "loading the reward"
        rewards = await loaded(stop, create_reward, load_section(RewardSection, "reward", raw["reward"]))
        await rewards.start()
        log.info("reward loaded", capacity=rewards.capacity)
        handler = RewardConsumer(
            rewards, create_algorithm(algorithm).has_signal, dynamic_sampling=algorithm.dynamic_sampling
        )
        rules = Rules.of(broker_settings, rewards.capacity)
        meter.stage = "waiting for the run to open"
        meter.loaded()

        def advance() -> float:
            return rewards.beats + meter.progress

        async def stay() -> None:
            meter.stage = "scoring"
            consuming = Consuming(broker, ROLLOUTS, name, handler, rules, meter, stop, archive, advance)
            await consuming.run()

        await consume(stay, broker, stop)
        await rewards.close()
    await broker.close()


async def trainer(folder: Path, name: str, stop: asyncio.Event) -> None:
    from consumers.trainer_start import train

    meter = Meter(stage="importing")
    raw = run_folder_settings(folder)
    await train(folder, name, raw, meter, stop)


async def rank(folder: Path, name: str, stop: asyncio.Event) -> None:
    """A rank beyond 0. The trainer starts it and tells it when to leave, so it is deaf to `stop`."""
    from consumers.rank_start import serve

    await serve(folder, name, run_folder_settings(folder), Meter(stage="loading the learner"))


ROLES = {"reward": reward, "judge": judge, "trainer": trainer, "rank": rank}


if __name__ == "__main__":
    leave(command("consumers", ROLES))
