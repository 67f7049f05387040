"""The folder of a run that has finished 100,000 groups, 4,000 steps and some hours, each group other than the next.

For: `dashboard`, which browses it. Not for: anything a trainer could resume.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, decoders, models

from broker.archive import Archive
from broker.messages import Delivery, Entry, Group, Prompt, Rollouts, Scores
from deploy.dashboard.history import HISTORY_FILE, MOST
from deploy.run_check import load_run
from deploy.run_folder import new_run_folder

SIBLINGS = 8
STEPS = 4_000
SLOTS = 8
BEGAN = 1_700_000_000.0
"""Seconds since 1970."""
SIGNS = [chr(code) for code in range(128)]
"""The vocabulary: an action is a character."""


def laid(root: Path, groups: int) -> Path:
    folder = new_run_folder(load_run("addition"), root, datetime.now(UTC))
    (folder / "model").mkdir()
    tokenizer = Tokenizer(models.WordLevel({sign: code for code, sign in enumerate(SIGNS)}, unk_token=SIGNS[0]))
    tokenizer.decoder = decoders.Fuse()  # type: ignore[assignment]
    tokenizer.save(str(folder / "model" / "tokenizer.json"))
    write_lines(folder / "steps.jsonl", map(step, range(1, STEPS + 1)))
    write_lines(folder / HISTORY_FILE, map(moment, range(MOST)))
    kept = {"run": folder.name, "goal": {"steps": STEPS, "staleness": 1, "stop_when": ""}, "elapsed_s": 2.0 * STEPS}
    books = {"train.admitted": groups, "train.trained": groups - groups // 3, "train.retired.no_signal": groups // 3}
    ended = {"stage": "finished", "version": STEPS, "counts": books, "finished": "trained all 4,000 versions"}
    (folder / "snapshot.json").write_text(json.dumps({**kept, **ended}))
    archive = Archive(folder / "groups", "trainer-0")
    for number, group in enumerate(finished(groups)):
        close(archive, number, group)
    archive.close()
    return folder


def write_lines(path: Path, lines: Iterable[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))


def step(version: int) -> dict[str, Any]:
    draw = np.random.default_rng(version)
    parts = {"wait_s": 0.1, "train_s": 0.8 + draw.random() / 5, "publish_s": 0.1}
    learned = {"reward": 1 - np.exp(-version / 1000) + draw.normal() / 20, "loss": draw.normal() / 10}
    sizes = {"groups": 25, "rollouts": 25 * SIBLINGS, "tokens": 4000, "grad_norm": 1 + draw.random()}
    stale = {"mean": 0.9, "max": 1, "counts": {"0": 2, "1": 23}}
    return {
        "version": version,
        "at": BEGAN + 2 * version,
        "seconds": 2.0,
        **learned,
        **sizes,
        **parts,
        "staleness": stale,
    }


def moment(number: int) -> dict[str, Any]:
    """What the timeline keeps of every slot; as many lines as it ever has."""
    draw, share = np.random.default_rng(number), 2 * STEPS / MOST
    pools = ["train", "judge", "judge"] + ["rollout"] * (SLOTS - 3)
    lanes = {
        f"slot-{slot}": [pools[(slot + number // 50) % SLOTS], "serving", round(draw.random(), 2), number]
        for slot in range(SLOTS)
    }
    backlog = {name: int(draw.integers(0, 60)) for name in ("prompts", "rollouts", "scored")}
    at, moves = BEGAN + share * number, []
    if number % 50 == 49:
        moves = [{"at": at, "slots": [["slot-0", "rollout", "judge"]], "why": "the judges fall behind"}]
    return {"at": at, "version": number * 2, "open": 50, "backlog": backlog, "lanes": lanes, "moves": moves}


def finished(groups: int) -> Iterator[Group]:
    """Sums, written out; the first sibling is right, others sometimes."""
    draw = np.random.default_rng(0)
    chances = -draw.random(1 << 20).astype(np.float32)
    for number, (one, two) in enumerate(draw.integers(10, 99_999, (groups, 2)).tolist()):
        right = [sibling == 0 or (number + sibling) % 3 == 0 for sibling in range(SIBLINGS)]
        texts = tuple(f"{one} and {two} make {one + two + (not good) * sibling}." for sibling, good in enumerate(right))
        actions = np.array([ord(sign) for text in texts for sign in text], np.int32)
        offsets = np.cumsum([0, *map(len, texts)], dtype=np.int32)
        place = number * 61 % (len(chances) - len(actions))
        question = f"What is {one} + {two}?"
        prompt = Prompt(
            text=question,
            actions=np.array([ord(sign) for sign in question], np.int32),
            size=SIBLINGS,
            seed=number,
            task="bench",
            answer=str(one + two),
        )
        rollouts = Rollouts(
            texts=texts,
            actions=actions,
            offsets=offsets,
            logprobs=chances[place : place + len(actions)],
            mask=np.ones(len(actions), np.uint8),
            spans=np.array([(sibling, 0, len(text), number // 25) for sibling, text in enumerate(texts)], np.int32),
            finishes=("stop",) * SIBLINGS,
        )
        rewards = np.array(right, np.float32)
        scores = Scores(rewards=rewards, parts={"exact_match": rewards})
        yield Group(id=f"bench/0/{number}", kind="train", prompt=prompt).with_rollouts(rollouts).with_scores(scores)


def close(archive: Archive, number: int, group: Group) -> None:
    """Every third retired, the others trained."""
    version = number // 25
    entry = Entry(group=group.id, kind="train", task="bench", size=SIBLINGS, floor=version, last_version=version + 1)
    delivery = Delivery(stream="scored", entry_id=f"{number + 1}-0", entry=entry)
    if number % 3:
        advantages = np.linspace(-1, 1, SIBLINGS, dtype=np.float32)
        archive.append(group, delivery, fate="trained", version=version + 1, advantages=advantages)
    else:
        archive.append(group, delivery, fate="retired", reason="no_signal")
