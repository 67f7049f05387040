"""TRL's `GRPOTrainer` on a task that stands in a file: `python trl_grpo.py TASK.json`; one JSON line for each moment.

For: `benchmarks.against_trl`, which writes the task (`task_of` there says what the fields are). Not for: Tidemill, of
which it imports nothing: it runs in an environment of its own (`trl.txt`). Time spent on measuring accuracy is told
apart, so that it can be left out.
"""

# pyright: reportMissingImports=false, reportUntypedBaseClass=false, reportUnknownParameterType=false

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

Task = dict[str, Any]


def say(event: str, **facts: Any) -> None:
    print(json.dumps({"event": event, "at": time.time(), **facts}), flush=True)


def lines(path: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def exact_match(completions: list[str], answer: list[str], **_: Any) -> list[float]:
    return [float(said.strip() == right.strip()) for said, right in zip(completions, answer, strict=True)]


def lexicon_sentiment(completions: list[str], **_: Any) -> list[float]:
    from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer

    analyzer = SentimentIntensityAnalyzer()
    return [float(analyzer.polarity_scores(said)["compound"]) for said in completions]


REWARDS = {"exact_match": exact_match, "lexicon_sentiment": lexicon_sentiment}


class WithoutDeadGroups(GRPOTrainer):
    """Rows whose advantage is 0 have no gradient; the loss is normalised by all of them all the same."""

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Any:
        rows = len(inputs["advantages"])
        alive = inputs["advantages"].nonzero()[:, 0]
        alive = alive if len(alive) else torch.tensor([0])
        chosen = {
            name: value[alive] if isinstance(value, torch.Tensor) and value.dim() and len(value) == rows else value
            for name, value in inputs.items()
        }
        return super()._compute_loss(model, chosen)


class Clock(TrainerCallback):
    """Tells of each step, measures accuracy when it is due, and stops at the goal."""

    def __init__(self, task: Task, tokenizer: Any) -> None:
        self.task, self.tokenizer = task, tokenizer
        self.held_out = lines(task["held_out"])
        self.evaluating_s = 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        say("begin")

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        say("step", step=state.global_step, evaluating_s=self.evaluating_s)
        if not self.task["evaluate_every"] or state.global_step % self.task["evaluate_every"]:
            return
        began = time.perf_counter()
        accuracy = self.accuracy(model)
        self.evaluating_s += time.perf_counter() - began
        say("accuracy", step=state.global_step, accuracy=accuracy, evaluating_s=self.evaluating_s)
        control.should_training_stop = accuracy >= self.task["stop_at"]

    @torch.no_grad()
    def accuracy(self, model: Any) -> float:
        """Mean reward of greedy answers to the held-out prompts."""
        said = self.tokenizer(
            [one["prompt"] for one in self.held_out],
            return_tensors="pt",
            padding=True,
            padding_side="left",
            add_special_tokens=False,
        )
        was_training = model.training
        model.eval()
        ids = model.generate(
            input_ids=said.input_ids,
            attention_mask=said.attention_mask,
            max_new_tokens=self.task["max_tokens"],
            do_sample=False,
        )
        model.train(was_training)
        completions = self.tokenizer.batch_decode(ids[:, said.input_ids.shape[1] :], skip_special_tokens=True)
        scores = REWARDS[self.task["reward"]](completions, answer=[one["answer"] for one in self.held_out])
        return sum(scores) / len(scores)


def config_of(task: Task, folder: str) -> GRPOConfig:
    rollouts = task["groups"] * task["group_size"]
    return GRPOConfig(
        output_dir=folder,
        per_device_train_batch_size=task["rows"],
        gradient_accumulation_steps=rollouts // task["rows"],
        num_generations=task["group_size"],
        max_completion_length=task["max_tokens"],
        learning_rate=task["lr"],
        adam_beta1=task["betas"][0],
        adam_beta2=task["betas"][1],
        weight_decay=task["weight_decay"],
        max_grad_norm=task["grad_clip"],
        epsilon=task["clip"],
        warmup_steps=task["warmup_steps"],
        lr_scheduler_type="constant_with_warmup",
        loss_type="dapo",  # every token of the batch counts the same, as in Tidemill's grpo
        beta=0.0,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        max_steps=task["steps"],
        seed=task["seed"],
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        shuffle_dataset=False,
        mask_truncated_completions=False,
        save_strategy="no",
        report_to="none",
        logging_steps=10**9,
        disable_tqdm=True,
    )


def lora_of(task: Task) -> Any:
    if not task["lora"]:
        return None
    from peft import LoraConfig

    chosen = task["lora"]
    return LoraConfig(
        r=chosen["r"],
        lora_alpha=chosen["alpha"],
        target_modules=chosen["targets"],
        lora_dropout=0.0,
        task_type="CAUSAL_LM",
    )


def main() -> None:
    task = json.loads(Path(sys.argv[1]).read_text())
    torch.set_num_threads(task["threads"])
    tokenizer = AutoTokenizer.from_pretrained(task["model"])
    model = AutoModelForCausalLM.from_pretrained(task["model"], dtype=torch.float32)
    say("loaded")
    trainer_class = WithoutDeadGroups if task["skip_dead"] else GRPOTrainer
    with tempfile.TemporaryDirectory() as folder:
        trainer = trainer_class(
            model=model,
            reward_funcs=REWARDS[task["reward"]],
            args=config_of(task, folder),
            train_dataset=Dataset.from_list(lines(task["prompts"])),
            processing_class=tokenizer,
            peft_config=lora_of(task),
            callbacks=[Clock(task, tokenizer)],
        )
        trainer.train()
    say("end")


if __name__ == "__main__":
    main()
