"""The settings of a whole run: one section per role, each from its own package.

For: the value everybody in `deploy` passes around, and its file in the run folder. Not for: where it comes from and
whether it can train (`run_check`).
"""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import Field

from broker.settings import (
    RUN_SETTINGS_FILE,
    BrokerSection,
    ModelSection,
    RunSection,
    Section,
    TelemetrySection,
    WeightsSection,
)
from consumers.settings import AlgorithmSection, RewardSection, TrainSection
from deploy.whole_file import write_whole
from producers.settings import PromptsSection, RolloutSection
from scheduler.settings import PoolSection, SchedulerSection

SECTIONS: dict[str, type[Section]] = {
    "run": RunSection,
    "model": ModelSection,
    "prompts": PromptsSection,
    "rollout": RolloutSection,
    "reward": RewardSection,
    "algorithm": AlgorithmSection,
    "train": TrainSection,
    "weights": WeightsSection,
    "scheduler": SchedulerSection,
    "broker": BrokerSection,
    "telemetry": TelemetrySection,
}


class RunSettings(Section):
    """All sections of a run, resolved: what the file does not say has its default."""

    run: RunSection = RunSection()
    model: ModelSection = ModelSection()
    prompts: PromptsSection = PromptsSection()
    rollout: RolloutSection = RolloutSection()
    reward: RewardSection = RewardSection()
    algorithm: AlgorithmSection = AlgorithmSection()
    train: TrainSection = TrainSection()
    weights: WeightsSection = WeightsSection()
    scheduler: SchedulerSection = SchedulerSection()
    pools: dict[str, PoolSection] = Field(default_factory=dict[str, PoolSection])
    broker: BrokerSection = BrokerSection()
    telemetry: TelemetrySection = TelemetrySection()

    def pool(self, name: str) -> PoolSection:
        return self.pools.get(name, PoolSection())

    def save(self, folder: Path) -> None:
        """Write the run's settings file, whole or not at all."""
        write_whole(folder / RUN_SETTINGS_FILE, json.dumps(self.model_dump(mode="json"), indent=1))
