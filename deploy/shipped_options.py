"""The options of what is shipped: which section class each engine, algorithm, learner and judge reads them with.

For: the reference of settings, and a check before anything starts. Not for: options of sources and rules, which are
their factories' parameters, nor of anybody's own parts. Imports nothing.
"""

from __future__ import annotations

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
