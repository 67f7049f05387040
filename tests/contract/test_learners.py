"""Learners: the same numbers whenever a step is repeated, resumed, cut into passes, or shared between ranks."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from broker import codec
from broker.errors import Misconfigured
from broker.messages import Group, Rollouts, Scores
from consumers.algorithms import ALGORITHMS
from consumers.policies import create as create_policy
from consumers.policies import gaussian, tiny_llama
from consumers.settings import AlgorithmSection, Correction, Lora
from tests.contract.learner_cases import advantages, exported, groups, learner

TRAINED: dict[str, dict[str, Any]] = {
    "scripted": {"learner": "scripted"},
    "whole": {},
    "several steps": {"optimizer_steps": 3, "warmup_steps": 4},
    "lora": {"lora": Lora(r=4, alpha=8)},
    "zero 2": {"zero_stage": 2},
    "zero 3": {"zero_stage": 3, "micro_tokens": 60},
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    tiny_llama.build(folder, dtype="float32", seed=3)
    return folder


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    folder = tmp_path / "vectors"
    folder.mkdir()
    gaussian.build(folder, gaussian.Sizes(context=3, action=2), seed=0)
    return folder


def train(one: Any, versions: range) -> dict[str, float]:
    metrics: dict[str, float] = {}
    for version in versions:
        batch = groups(version)
        metrics = dict(one.step(batch, advantages(batch), version=version, seed=version).metrics)
    return metrics


def tensors(one: Any, folder: Path) -> dict[str, np.ndarray[Any, Any]]:
    exported(one, folder)
    return load_file(folder / "model.safetensors")


def assert_close(one: dict[str, Any], other: dict[str, Any], *, within: float) -> None:
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        np.testing.assert_allclose(tensor, other[name], rtol=0, atol=within, err_msg=name)


@pytest.mark.parametrize("how", TRAINED)
def test_the_same_steps_give_the_same_bits_also_over_a_checkpoint(tiny: Path, tmp_path: Path, how: str) -> None:
    straight, stopped = learner(tiny, **TRAINED[how]), learner(tiny, **TRAINED[how])
    train(straight, range(3))
    before = exported(straight, tmp_path / "v3")
    train(straight, range(3, 5))

    train(stopped, range(3))
    assert exported(stopped, tmp_path / "again") == before
    stopped.save(tmp_path / "checkpoint")
    stopped.close()
    resumed = learner(tiny, **TRAINED[how])
    resumed.load(tmp_path / "checkpoint")
    assert exported(resumed, tmp_path / "resumed") == before
    train(resumed, range(3, 5))
    assert exported(resumed, tmp_path / "resumed") == exported(straight, tmp_path / "v5") != before


@pytest.mark.parametrize("how", TRAINED)
def test_published_tensors_replace_the_learners_own(tiny: Path, tmp_path: Path, how: str) -> None:
    ahead, behind = learner(tiny, **TRAINED[how]), learner(tiny, **TRAINED[how])
    train(ahead, range(2))
    published = exported(ahead, tmp_path / "published")
    behind.load_weights(tmp_path / "published")
    assert exported(behind, tmp_path / "behind") == published
    train(behind, range(2, 3))
    assert exported(behind, tmp_path / "behind") != published


@pytest.mark.parametrize("how", TRAINED)
def test_weights_put_aside_stay_as_they_were_while_training_goes_on(tiny: Path, tmp_path: Path, how: str) -> None:
    one = learner(tiny, **TRAINED[how])
    train(one, range(1))
    write, then = one.export(), exported(one, tmp_path / "then")
    train(one, range(1, 3))
    write(tmp_path / "then")
    assert (tmp_path / "then" / "model.safetensors").read_bytes() == then != exported(one, tmp_path / "now")


@pytest.mark.parametrize("how", ["whole", "lora", "zero 3"])
def test_the_canarys_logprobs_are_those_of_the_exported_tensors(tiny: Path, tmp_path: Path, how: str) -> None:
    one = learner(tiny, **TRAINED[how])
    train(one, range(2))
    one.save_pretrained(tmp_path / "saved")
    opened = create_policy("causal_lm", tmp_path / "saved", dtype="float32", lora=None, seed=0, device="cpu")
    batch = groups(7)
    contexts = [group.prompt.actions for group in batch]
    continuations = [group.rollouts.actions[group.rollouts.sibling(1)] for group in batch if group.rollouts]
    with torch.no_grad():
        expected = opened.logprobs(opened.module, contexts, continuations, [1.0] * len(contexts)).numpy()
    np.testing.assert_allclose(np.concatenate(one.logprobs(contexts, continuations)), expected, atol=2e-5)


@pytest.mark.parametrize(
    "other",
    [{"micro_tokens": 40}, {"zero_stage": 1}, {"zero_stage": 2, "micro_tokens": 40}, {"zero_stage": 3}],
    ids=str,
)
def test_passes_and_partitioning_do_not_change_what_is_learnt(
    tiny: Path, tmp_path: Path, other: dict[str, Any]
) -> None:
    plain, cut = learner(tiny), learner(tiny, **other)
    metrics, same = train(plain, range(3)), train(cut, range(3))
    assert metrics["trained_actions"] > 0
    assert {name: value for name, value in same.items() if name != "compute_s"} == pytest.approx(
        {name: value for name, value in metrics.items() if name != "compute_s"}, rel=1e-3, abs=1e-6
    )
    assert_close(tensors(plain, tmp_path / "plain"), tensors(cut, tmp_path / "cut"), within=1e-5)


@pytest.mark.parametrize("other", [{}, {"zero_stage": 3}], ids=str)
def test_products_through_onednn_do_not_change_what_is_learnt(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: dict[str, Any]
) -> None:
    """These products are too small to go there by themselves; under ZeRO 3 a weight is elsewhere between the passes."""
    plain = learner(tiny, **other)
    train(plain, range(3))
    monkeypatch.setattr("consumers.policies.quick_products.WORTH", 0)
    quick = learner(tiny, **other)
    train(quick, range(3))
    assert_close(tensors(plain, tmp_path / "plain"), tensors(quick, tmp_path / "quick"), within=3e-5)


def with_rewards(group: Group, rewards: list[float]) -> Group:
    return replace(group, scores=Scores(rewards=np.array(rewards, np.float32)))


def test_a_batch_without_signal_changes_nothing(tiny: Path, tmp_path: Path) -> None:
    one = learner(tiny)
    train(one, range(1))
    before = exported(one, tmp_path / "before")
    batch = [with_rewards(group, [1, 1, 1, 1]) for group in groups(5)]
    result = one.step(batch, advantages(batch), version=1, seed=1)
    assert result.metrics["trained_actions"] == 0
    assert exported(one, tmp_path / "after") == before


def test_rollouts_without_signal_are_not_computed_but_count_in_the_denominator(tiny: Path) -> None:
    batch = groups(5)
    silent = [with_rewards(group, [1, 1, 1, 1]) for group in groups(6)]
    alone, among = learner(tiny), learner(tiny)
    small = alone.step(batch, advantages(batch), version=0, seed=0).metrics
    large = among.step(batch + silent, advantages(batch + silent), version=0, seed=0).metrics
    actions = [sum(int(group.rollouts.mask.sum()) for group in some if group.rollouts) for some in (batch, silent)]
    assert large["trained_actions"] == small["trained_actions"]
    assert large["grad_norm"] == pytest.approx(small["grad_norm"] * actions[0] / sum(actions), rel=1e-4)


def test_rollouts_without_signal_can_be_made_to_take_part_and_change_nothing_but_the_cost(tiny: Path) -> None:
    batch = [*groups(5), *(with_rewards(group, [1, 1, 1, 1]) for group in groups(6))]
    skips, trains = learner(tiny), learner(tiny, options={"without_signal": "train"})
    small, large = (one.step(batch, advantages(batch), version=0, seed=0).metrics for one in (skips, trains))
    assert large["trained_actions"] > small["trained_actions"]
    assert large["grad_norm"] == pytest.approx(small["grad_norm"], rel=1e-4)


def test_an_unknown_option_of_the_learner_is_refused_with_the_known_ones(tiny: Path) -> None:
    with pytest.raises(Misconfigured, match=r"train\.options.*polcy"):
        learner(tiny, options={"polcy": "gaussian"})


def test_a_penalty_to_the_reference_reaches_rollouts_without_signal_too(tiny: Path, tmp_path: Path) -> None:
    one = learner(tiny, algorithm=AlgorithmSection(kl_coef=0.1))
    train(one, range(2))
    before = exported(one, tmp_path / "before")
    batch = [with_rewards(group, [0, 0, 0, 0]) for group in groups(5)]
    result = one.step(batch, advantages(batch), version=2, seed=2)
    assert result.metrics["kl"] > 0
    assert exported(one, tmp_path / "after") != before


@pytest.mark.parametrize("token", ["clip", "tis", "mis", "icepop", "none"])
def test_every_correction_trains_and_reports_how_far_off_policy_it_was(tiny: Path, token: Any) -> None:
    correction = Correction(token=token, token_cap=1.2, sequence_cap=1.5)
    metrics = train(learner(tiny, algorithm=AlgorithmSection(correction=correction)), range(3))
    assert metrics["mismatch_k3"] > 0
    assert metrics["ratio_max"] > metrics["ratio_mean"] > 0
    assert 0 < metrics["ess"] <= 1
    assert metrics["grad_norm"] > 0


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_learns_from_vectors_that_went_through_the_codec(vectors: Path, name: str) -> None:
    """A bandit over the plane: reward is nearness to a point that depends on the context."""
    algorithm = AlgorithmSection(name=name, options={"length": 1} if name == "dr_grpo" else {})
    one = learner(vectors, algorithm=algorithm, lr=0.02, options={"policy": "gaussian"})
    rng = np.random.default_rng(0)
    means: list[float] = []
    for version in range(40):
        batch = [bandit(vectors, one, rng, number) for number in range(16)]
        batch = [codec.decode_group_bytes(codec.encode_group(group)) for group in batch]
        means.append(float(np.mean([group.reward or 0.0 for group in batch])))
        one.step(batch, advantages(batch, algorithm), version=version, seed=version)
    assert np.mean(means[-5:]) > np.mean(means[:5]) + 0.5, means


def bandit(folder: Path, one: Any, rng: np.random.Generator, number: int) -> Group:
    """Eight vectors drawn from the exported weights for one context."""
    weights = tensors(one, folder)
    context = rng.choice([-1.0, 1.0], size=(1, 3)).astype(np.float32)
    hidden = np.tanh(weights["mean.0.weight"] @ np.append(context, [0, 0]).astype(np.float32) + weights["mean.0.bias"])
    spread = np.exp(weights["log_spread"])
    mean = weights["mean.2.weight"] @ hidden + weights["mean.2.bias"]
    actions = (mean + spread * rng.normal(size=(8, 2))).astype(np.float32)
    logprobs = -(0.5 * ((actions - mean) / spread) ** 2 + np.log(spread) + 0.5 * np.log(2 * np.pi)).sum(1)
    rollouts = Rollouts(
        texts=("",) * 8,
        actions=actions,
        offsets=np.arange(9, dtype=np.int32),
        logprobs=logprobs.astype(np.float32),
        mask=np.ones(8, np.uint8),
        spans=np.array([[sibling, 0, 1, 0] for sibling in range(8)], np.int32),
        finishes=("stop",) * 8,
    )
    rewards = -((actions - 2 * context[0, :2]) ** 2).sum(1).astype(np.float32) / 4
    prompt = replace(groups(0, count=1)[0].prompt, actions=context, size=8)
    return Group(
        id=f"bandit/0/{number}", kind="train", prompt=prompt, rollouts=rollouts, scores=Scores(rewards=rewards)
    )


def test_bfloat16_trains_and_half_precision_on_a_cpu_is_refused(tiny: Path, tmp_path: Path) -> None:
    one = learner(tiny, dtype="bfloat16")
    before = exported(one, tmp_path / "before")
    assert train(one, range(2))["grad_norm"] > 0
    assert exported(one, tmp_path / "after") != before
    with pytest.raises(Misconfigured, match="use float32 or bfloat16"):
        learner(tiny, dtype="float16")


def test_a_learner_is_made_after_somebody_else_ended_the_world_of_the_last_one(tiny: Path) -> None:
    train(learner(tiny), range(1))
    torch.distributed.destroy_process_group()
    assert train(learner(tiny), range(1))["grad_norm"] > 0


def test_an_unknown_learner_is_refused_with_the_known_ones(tiny: Path) -> None:
    with pytest.raises(Misconfigured, match="known: deepspeed, scripted"):
        learner(tiny, learner="deepsped")


def test_ranks_without_a_meeting_place_are_refused(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MASTER_PORT", raising=False)
    with pytest.raises(Misconfigured, match="set MASTER_ADDR and MASTER_PORT"):
        learner(tiny, ranks=2)


@pytest.fixture
def two_ranks(tiny: Path, tmp_path: Path) -> Iterator[Any]:
    """A function that starts rank 0 and rank 1 at a ZeRO stage."""
    processes: list[subprocess.Popen[str]] = []

    def start(stage: int) -> list[subprocess.Popen[str]]:
        environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
        for rank in range(2):
            script = Path(__file__).with_name("rank_process.py")
            command = [sys.executable, str(script), str(rank), str(tiny), str(tmp_path), str(stage)]
            pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
            processes.append(subprocess.Popen(command, env=environment, text=True, **pipes))
            if rank == 0:
                environment |= {"MASTER_PORT": line_with(processes[0], "meet").split()[1]}
        return processes

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def line_with(process: Any, word: str) -> str:
    """The next line of rank 0 that begins so; other libraries may write before it."""
    for line in process.stdout:
        if line.startswith(word):
            return line
    raise AssertionError(process.stderr.read())


@pytest.mark.parametrize("stage", [0, 3])
def test_two_ranks_learn_what_one_learns_and_end_when_either_dies(
    tiny: Path, tmp_path: Path, two_ranks: Any, stage: int
) -> None:
    ranks = two_ranks(stage)
    _, loss, norm = line_with(ranks[0], "trained").split()
    alone = learner(tiny)
    metrics = train(alone, range(2))
    assert float(loss) == pytest.approx(metrics["loss"], abs=1e-5)
    assert float(norm) == pytest.approx(metrics["grad_norm"], rel=1e-4)
    # AdamW's first steps are the gradient's sign: where it is nearly zero, rounding moves a weight by part of the rate
    assert_close(load_file(tmp_path / "model.safetensors"), tensors(alone, tmp_path / "alone"), within=3e-5)

    dying, living = (ranks[1], ranks[0]) if stage == 0 else (ranks[0], ranks[1])
    dying.kill()
    _, said = living.communicate("step\n" if living is ranks[0] else None, timeout=60)
    assert living.returncode == 75, said
    assert "start" in said
