"""Engine `vllm` in this process, where it can go wrong as no other engine can.

What every engine keeps is in `test_engines`. Here: vLLM's cache and its packed weights must not outlive a version, its
siblings, seeds and end tokens must be ours, and what it cannot do must be said. Weights differ from version to version,
because loading the same ones again would hide a load that does nothing.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

if importlib.util.find_spec("vllm") is None:
    pytest.skip("vllm is not installed (deploy/setup.sh with VLLM=0 leaves it out)", allow_module_level=True)

from safetensors.torch import load_file, save_file

from broker.errors import Broken, Poison
from broker.messages import Group, Rollouts
from producers.engines.base import Continuation
from producers.engines.vllm import make
from producers.engines.vllm_core import VllmCore
from producers.settings import RolloutSection
from tests.contract.engine_cases import LONGEST, VOCABULARY, Weights, group, publish

pytestmark = pytest.mark.timeout(60)

NATS = 1e-4
"""In float32."""

DEADLINE_S = 30.0


class World:
    """An engine, and the versions it can be given."""

    def __init__(self, root: Path, model: str) -> None:
        self.tied = model.endswith("-tied")
        self.weights: dict[int, Weights] = {}
        for version in range(4):
            (root / str(version)).mkdir()
            publish(model, version, root / str(version))
            self.weights[version] = Weights(root / str(version), scripted=False)
        made = make(root / "0", RolloutSection(max_rows=64, options={"kv_cache_mb": 32}), seed=0)
        assert isinstance(made, VllmCore)
        self.core = made
        self.cached: list[int | None] = []
        self.watch_cache()

    def watch_cache(self) -> None:
        """Note of each finished request how many tokens of its context were in the cache."""
        step = self.core.engine.step

        def watched() -> list[Any]:
            outputs = step()
            self.cached += [each.num_cached_tokens for each in outputs]
            return outputs

        self.core.engine.step = watched

    def load(self, version: int) -> None:
        self.core.load(self.weights[version].folder, version)

    def run(self, *groups: Group) -> list[Rollouts]:
        """Of each group, in order."""
        for each in groups:
            self.core.add(each)
        found = self.finish()
        return [found[each.id] for each in groups]

    def finish(self) -> dict[str, Rollouts]:
        found, deadline = dict[str, Rollouts](), time.monotonic() + DEADLINE_S
        while not self.core.is_idle:
            assert time.monotonic() < deadline, "the engine did not finish its groups"
            found.update(self.core.step())
        return found

    def largest_error(self, asked: Group, rollouts: Rollouts) -> float:
        """Over all spans, each against the version it names."""
        return max(
            self.error(asked, rollouts, int(sibling), slice(int(start), int(end)), int(version))
            for sibling, start, end, version in rollouts.spans
        )

    def error(self, asked: Group, rollouts: Rollouts, sibling: int, span: slice, version: int) -> float:
        """Largest difference of what is recorded from what a transformers forward of that version says."""
        context, actions = asked.prompt.actions.tolist(), rollouts.actions[rollouts.sibling(sibling)].tolist()
        expected = self.weights[version].logprobs(context, actions, asked.prompt.temperature)
        return float(np.abs(rollouts.logprobs[rollouts.sibling(sibling)] - expected)[span].max())


@pytest.fixture(scope="module", params=["llama-tied", "llama-untied"])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    world = World(tmp_path_factory.mktemp(request.param), request.param)
    yield world
    world.core.close()


def siblings(rollouts: Rollouts) -> list[list[int]]:
    return [rollouts.actions[rollouts.sibling(index)].tolist() for index in range(len(rollouts.finishes))]


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_recorded_logprobs_are_those_of_the_weights_loaded_last(world: World, temperature: float) -> None:
    world.load(1)
    world.load(2)
    asked = group(1, temperature=temperature)
    (rollouts,) = world.run(asked)
    assert set(rollouts.spans[:, 3]) == {2}
    assert world.largest_error(asked, rollouts) < NATS
    assert world.error(asked, rollouts, 0, slice(None), version=1) > 0.1


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_each_span_of_a_rollout_updated_in_flight_belongs_to_its_own_version(world: World, temperature: float) -> None:
    world.load(1)
    asked = group(1, temperature=temperature, most=30)
    world.core.add(asked)
    for version, steps in ((2, 9), (3, 8)):
        for _ in range(steps):
            assert world.core.step() == []
        world.load(version)
    rollouts = world.finish()[asked.id]
    spans = [[sibling, *span] for sibling in range(4) for span in ([0, 9, 1], [9, 17, 2], [17, 30, 3])]
    assert rollouts.spans.tolist() == spans
    assert world.largest_error(asked, rollouts) < NATS


def test_a_context_found_in_the_cache_gives_the_same_logprobs(world: World) -> None:
    world.load(1)
    asked = group(1, length=80)
    world.run(asked)
    world.cached.clear()
    (rollouts,) = world.run(changed(asked, seed=9))
    assert world.cached == [64], "two whole blocks of the context should have come from the cache"
    assert world.largest_error(asked, rollouts) < NATS


def test_nothing_cached_under_old_weights_is_used_under_new_ones(world: World) -> None:
    world.load(1)
    asked = group(1, length=80, size=1)
    world.run(asked)
    world.load(2)
    world.cached.clear()
    (rollouts,) = world.run(changed(asked, seed=9))
    assert world.cached == [0]
    assert world.largest_error(asked, rollouts) < NATS


def changed(asked: Group, **changes: Any) -> Group:
    """Another group, with the same prompt but for these."""
    return replace(asked, id=f"{asked.id}/{changes}", prompt=replace(asked.prompt, **changes))


def test_more_context_than_one_step_reads_is_read_in_several(world: World) -> None:
    world.load(1)
    asked = [group(index, length=120, size=1, most=3) for index in range(40)]
    for each, rollouts in zip(asked, world.run(*asked), strict=True):
        assert world.largest_error(each, rollouts) < NATS


def test_only_the_prompt_says_what_ends_a_rollout(world: World) -> None:
    """The model's own end token too: it ends a rollout if the prompt says so, and is passed if not."""
    world.load(1)
    end = 2
    asked = group(1, most=100, size=32)
    passes, stops = world.run(asked, changed(asked, stop=(end,)))
    assert set(passes.finishes) == {"length"}
    ended = [actions for actions in siblings(passes) if end in actions[:-1]]
    assert ended, "an end token that is no stop should have been passed"
    for whole, cut, finish in zip(siblings(passes), siblings(stops), stops.finishes, strict=True):
        assert cut == (whole[: whole.index(end) + 1] if end in whole else whole)
        assert finish == ("stop" if end in whole else "length")


def test_groups_with_neighbouring_seeds_share_no_sibling(world: World) -> None:
    world.load(1)
    asked = group(1, most=20)
    found = [siblings(rollouts) for rollouts in world.run(*(changed(asked, seed=seed) for seed in (5, 6, 7)))]
    assert len({tuple(actions) for each in found for actions in each}) == 12


def test_greedy_siblings_are_all_there_and_equal(world: World) -> None:
    world.load(1)
    asked = group(1, temperature=0.0, size=3, most=6)
    rollouts, _ = world.run(asked, group(2))
    first, *others = siblings(rollouts)
    assert others == [first, first]
    assert first[0] == world.weights[1].likeliest(asked.prompt.actions.tolist())
    assert world.largest_error(asked, rollouts) < NATS, "recorded should be the log-probability at temperature 1"


def test_scoring_while_groups_run_loses_none_of_them(world: World) -> None:
    world.load(1)
    asked = [group(index) for index in range(40)]
    for each in asked:
        world.core.add(each)
    world.core.step()
    context = asked[0].prompt.actions
    empty = Continuation(context=context, continuation=context[:0])
    found = world.core.logprobs([*[Continuation(context=context, continuation=context)] * 8, empty])
    assert [len(each) for each in found] == [5] * 8 + [0]
    assert sorted(world.finish()) == sorted(each.id for each in asked)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"max_actions": LONGEST}, ["5 prompt tokens", f"{LONGEST} more", str(LONGEST + 5)]),
        ({"max_actions": 0}, ["0 actions"]),
        ({"actions": np.zeros(0, np.int32)}, ["0 prompt tokens"]),
        ({"actions": np.array([4, VOCABULARY], np.int32)}, [f"4..{VOCABULARY}", f"vocabulary of {VOCABULARY}"]),
        ({"actions": np.zeros((3, 2), np.float32)}, ["float32"]),
        ({"temperature": 0.001}, ["temperature 0.001"]),
    ],
)
def test_a_group_that_can_never_be_sampled_is_poison(
    world: World, changes: Mapping[str, Any], words: list[str]
) -> None:
    with pytest.raises(Poison) as caught:
        world.core.add(changed(group(1), **changes))
    assert all(word in str(caught.value) for word in words)
    assert world.core.is_idle


def test_weights_without_a_layer_are_refused_and_change_nothing(world: World, tmp_path: Path) -> None:
    world.load(1)
    tensors = load_file(world.weights[2].folder / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(Broken, match=r"model\.layers\.1\.mlp\.up_proj\.weight is missing"):
        world.core.load(tmp_path, 2)
    (rollouts,) = world.run(group(1))
    assert set(rollouts.spans[:, 3]) == {1}
    assert world.largest_error(group(1), rollouts) < NATS


def test_weights_that_are_no_numbers_stop_the_engine(world: World, tmp_path: Path) -> None:
    tensors = load_file(world.weights[2].folder / "model.safetensors")
    tensors["model.norm.weight"].fill_(float("nan"))
    save_file(tensors, tmp_path / "model.safetensors")
    world.core.load(tmp_path, 2)
    with pytest.raises(Broken, match="no numbers"):
        world.run(group(1))


def test_a_tied_output_layer_keeps_old_weights_without_the_mend(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails on a vLLM that packs the layer by itself: then `vllm_tied_head` can go."""
    from producers.engines import vllm_tied_head

    world.load(1)
    monkeypatch.setattr(vllm_tied_head, "pack_again", lambda _: None)
    world.load(2)
    (rollouts,) = world.run(group(1))
    assert (world.largest_error(group(1), rollouts) > 0.1) == world.tied
