"""How fast engines sample, side by side with transformers' own generation: `python -m benchmarks.engine_torch`.

In processor seconds of one thread, so that a busy machine disturbs little; set OMP_NUM_THREADS=1 and
OMP_WAIT_POLICY=PASSIVE. `--model smollm2` takes the shape of SmolLM2-135M with random weights; `--engines` names any of
those below, or a registered engine.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models
from transformers import AutoModelForCausalLM, ContinuousBatchingConfig, GenerationConfig, LlamaConfig, LlamaForCausalLM

from benchmarks.result import Result, circumstances, gathered
from broker.messages import Group, Prompt
from producers.engines import ENGINES, factory
from producers.engines.base import EngineCore
from producers.settings import RolloutSection

CONFIGS = {
    "tiny-llama": {
        "vocab_size": 64, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 4, "max_position_embeddings": 256,
    },
    "smollm2": {
        "vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
        "num_attention_heads": 9, "num_key_value_heads": 3, "max_position_embeddings": 2048,
    },
}  # fmt: skip


@dataclass(frozen=True)
class Shape:
    """P prompts of so many tokens, G siblings each, so many actions: all alike, or exponential with this mean."""

    prompts: int
    siblings: int
    actions: int
    prompt_tokens: int = 7
    rows: int = 512
    varying: bool = False

    def lengths(self) -> list[int]:
        if not self.varying:
            return [self.actions] * self.prompts
        drawn = np.random.default_rng(1).exponential(self.actions, self.prompts)
        return np.clip(drawn.astype(int), 1, 5 * self.actions).tolist()

    def groups(self, vocabulary: int) -> list[Group]:
        draw = np.random.default_rng(0)
        return [
            Group(
                id=f"bench/0/{index}",
                kind="train",
                prompt=Prompt(
                    text="",
                    actions=draw.integers(3, vocabulary, self.prompt_tokens).astype(np.int32),
                    size=self.siblings,
                    seed=index,
                    max_actions=most,
                ),
            )
            for index, most in enumerate(self.lengths())
        ]


SHAPES = {
    "tiny-llama": {
        "512 x 4": Shape(64, 8, 4),
        "128 x 32": Shape(16, 8, 32),
        "512 x 32": Shape(64, 8, 32),
        "512 x about 26, 128 at a time": Shape(512, 1, 26, rows=128, varying=True),
    },
    "smollm2": {"16 x 20": Shape(2, 8, 20, prompt_tokens=12), "64 x 20": Shape(8, 8, 20, prompt_tokens=38)},
}


@dataclass(frozen=True, slots=True)
class Sampler:
    """One way to sample."""

    run: Callable[[Sequence[Group]], int]
    """Samples these groups; answers how many tokens."""
    close: Callable[[], None] = lambda: None


def core(engine: str, folder: Path, shape: Shape, options: dict[str, Any]) -> Sampler:
    """A stepping engine."""
    settings = RolloutSection(engine=engine, group_size=shape.siblings, max_rows=shape.rows, options=options)
    made: EngineCore = factory(engine)(model_folder=folder, settings=settings, seed=0)
    made.load(folder, 0)

    def run(groups: Sequence[Group]) -> int:
        for group in groups:
            made.add(group)
        finished = []
        while not made.is_idle:
            finished += made.step()
        return sum(len(rollouts.logprobs) for _, rollouts in finished)

    return Sampler(run, made.close)


def generate(folder: Path, shape: Shape) -> Sampler:
    """`transformers.generate` over padded batches, as long as their longest; without log-probabilities."""
    model = AutoModelForCausalLM.from_pretrained(folder).eval()

    def run(groups: Sequence[Group]) -> int:
        rows = [group.prompt for group in groups for _ in range(group.prompt.size)]
        for at in range(0, len(rows), shape.rows):
            batch = rows[at : at + shape.rows]
            ids = torch.from_numpy(np.stack([prompt.actions for prompt in batch]).astype(np.int64))
            most = max(prompt.max_actions for prompt in batch)
            cast("Any", model).generate(
                input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=most, min_new_tokens=most,
                do_sample=True, top_k=0, pad_token_id=0,
            )  # fmt: skip
        return sum(prompt.max_actions for prompt in rows)

    return Sampler(run)


def batching(folder: Path, shape: Shape) -> Sampler:
    """transformers' own continuous batching with log-probabilities, its thread and cache kept from run to run."""
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    manager = model.init_continuous_batching(
        generation_config=GenerationConfig(max_new_tokens=1, do_sample=True, top_k=0, eos_token_id=-1, pad_token_id=0),
        continuous_batching_config=ContinuousBatchingConfig(
            return_logprobs=True, num_blocks=1024, page_size=32, max_batch_tokens=4096,
            max_requests_per_batch=shape.rows, use_cuda_graph=False,
        ),
    )  # fmt: skip
    manager.start()

    def run(groups: Sequence[Group]) -> int:
        left = 0
        for group in groups:
            for _ in range(group.prompt.size):
                manager.add_request(group.prompt.actions.tolist(), max_new_tokens=group.prompt.max_actions)
                left += 1
        tokens = 0
        while left:
            found = manager.get_result(timeout=60)
            if found is not None and found.is_finished():
                tokens += len(found.logprobs)
                left -= 1
        return tokens

    return Sampler(run, lambda: manager.stop(block=True))


def sampler(engine: str, folder: Path, shape: Shape) -> Sampler:
    if engine == "generate":
        return generate(folder, shape)
    if engine == "batching":
        return batching(folder, shape)
    name, _, forward = engine.partition(":")
    return core(name, folder, shape, {"forward": forward} if forward else {})


def measure(sampler: Sampler, groups: Sequence[Group], repeats: int) -> dict[str, list[float]]:
    """Figures of each repeat, after one that warms up."""
    tokens = sampler.run(groups)
    rollouts = sum(group.prompt.size for group in groups)
    found: list[dict[str, float]] = []
    for _ in range(repeats):
        began = time.process_time()
        sampler.run(groups)
        cpu_s = time.process_time() - began
        found.append(
            {
                "cpu_ms": round(cpu_s * 1e3, 1),
                "completions_per_s": round(rollouts / cpu_s),
                "tokens_per_s": round(tokens / cpu_s),
            }
        )
    return gathered(found)


def build(model: str, folder: Path) -> None:
    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(**cast("Any", CONFIGS[model]), tie_word_embeddings=True)).save_pretrained(folder)
    tokenizer = Tokenizer(
        models.WordLevel({f"{number} ": number for number in range(CONFIGS[model]["vocab_size"])}, unk_token="0 ")
    )
    tokenizer.decoder = decoders.Fuse()
    tokenizer.save(str(folder / "tokenizer.json"))


def measured(model: str, engines: Sequence[str], repeats: int) -> dict[str, dict[str, list[float]]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        build(model, folder)
        cases: dict[str, dict[str, list[float]]] = {}
        for title, shape in SHAPES[model].items():
            groups = shape.groups(CONFIGS[model]["vocab_size"])
            for engine in engines:
                ready = sampler(engine, folder, shape)
                cases[f"{title}, {engine}"] = measure(ready, groups, repeats)
                ready.close()
                print(title, engine, cases[f"{title}, {engine}"], flush=True)
    return cases


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=sorted(CONFIGS), default="tiny-llama")
    parser.add_argument(
        "--engines",
        nargs="+",
        default=["torch", "torch:transformers", "generate"],
        metavar="|".join(["generate", "batching", *ENGINES]),
    )
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    before = circumstances()
    result = Result(
        name="engine_torch" if options.model == "tiny-llama" else f"engine_torch-{options.model}",
        measures=f"sampling with {options.model}, rollouts × tokens, per processor second of one thread",
        circumstances=before,
        arguments="" if options.model == "tiny-llama" else f"--model {options.model}",
        settings={"model": options.model, "threads": torch.get_num_threads(), "repeats": options.repeats},
        samples=measured(options.model, options.engines, options.repeats),
    )
    engine = options.engines[0]
    speeds = {title: result.median(f"{title}, {engine}", "tokens_per_s") for title in SHAPES[options.model]}
    result.save(f"{engine}: " + "; ".join(f"{title}: {speed:,.0f} tokens/s" for title, speed in speeds.items()))


if __name__ == "__main__":
    main()
