"""The options of what is shipped: which section class each engine, algorithm, learner and judge reads them with.

For: the reference of settings, and a check before anything starts. Not for: options of sources and rules, which are
their factories' parameters, nor of anybody's own parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from broker.settings import Section
from deploy.run_settings import RunSettings

OPTIONS: dict[str, dict[str, str]] = {
    "rollout.options": {
        "torch": "producers.settings:TorchOptions",
        "vllm": "producers.settings:VllmOptions",
        "scripted": "producers.engines.scripted:ScriptedOptions",
    },
    "reward.parts.options": {
        "scripted_judge": "consumers.rewards.scripted_judge:ScriptedJudgeOptions",
    },
    "algorithm.options": {
        "cispo": "consumers.algorithms.cispo:Options",
        "dapo": "consumers.algorithms.dapo:Options",
        "dr_grpo": "consumers.algorithms.dr_grpo:Options",
        "grpo": "consumers.algorithms.grpo:Options",
        "gspo": "consumers.algorithms.gspo:Options",
        "reinforce": "consumers.algorithms.reinforce:Options",
        "rloo": "consumers.algorithms.rloo:Options",
    },
    "train.options": {
        "deepspeed": "consumers.settings:DeepSpeedOptions",
        "scripted": "consumers.learners.scripted:ScriptedLearnerOptions",
    },
}
"""Where options stand → name → `module:Section`."""


def section_class(place: str, name: str) -> type[Section]:
    module, _, attribute = OPTIONS[place][name].partition(":")
    return getattr(import_module(module), attribute)


def given(settings: RunSettings) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """(where they stand, whose they are, the options) for what is shipped; the engine `auto` is nobody yet."""
    asked = [
        ("rollout.options", settings.rollout.engine, settings.rollout.options),
        ("algorithm.options", settings.algorithm.name, settings.algorithm.options),
        ("train.options", settings.train.learner, settings.train.options),
        *(("reward.parts.options", part.name, part.options) for part in settings.reward.parts),
    ]
    yield from ((place, name, options) for place, name, options in asked if name in OPTIONS[place])
