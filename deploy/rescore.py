"""Stored rollouts through another reward: what a run would have been told, without generating anything.

For: `tidemill rescore`. Not for: training on it, or how it is printed (`rescored_in_words`). Rules run in worker
processes, judges in this one, on whatever devices it sees. A group that cannot be scored is counted with the reason,
never taken for 0.
"""

from __future__ import annotations

import asyncio
import heapq
import tomllib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from broker.archive import Closed
from broker.archive_index import GroupIndex
from broker.errors import Misconfigured
from broker.messages import Kind
from broker.settings import load_section
from consumers.rewards import create
from consumers.rewards.base import Reward, Score
from consumers.settings import RewardPart, RewardSection

SAME = 1e-6
"""Rewards that differ by no more are the same."""

SCORED = (float("-inf"), None)
"""Bounds that leave out only groups without a reward."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One completion that the two rewards see differently."""

    group: str
    sibling: int
    prompt: str
    text: str
    before: float
    after: float


@dataclass(slots=True)
class Comparison:
    """Sums over all groups; axes: one entry per completion, in the same order everywhere."""

    before: list[NDArray[np.float32]] = field(default_factory=list["NDArray[np.float32]"])
    after: list[NDArray[np.float32]] = field(default_factory=list["NDArray[np.float32]"])
    parts_before: dict[str, list[NDArray[np.float32]]] = field(default_factory=dict[str, "list[NDArray[np.float32]]"])
    parts_after: dict[str, list[NDArray[np.float32]]] = field(default_factory=dict[str, "list[NDArray[np.float32]]"])
    differing: list[tuple[float, int, Example]] = field(default_factory=list[tuple[float, int, Example]])
    """A heap of those that differ most, the least first; one of a group."""
    failed: dict[str, int] = field(default_factory=dict[str, int])
    """Reason → groups that could not be scored."""

    def add(self, closed: Closed, score: Score, examples: int) -> None:
        scores, rollouts = closed.group.scores, closed.group.rollouts
        assert scores is not None
        assert rollouts is not None
        before, after = scores.rewards, score.rewards
        self.before.append(before)
        self.after.append(after)
        for sums, parts in ((self.parts_before, scores.parts), (self.parts_after, score.parts)):
            for name, values in parts.items():
                sums.setdefault(name, []).append(values)
        sibling = int(np.abs(after - before).argmax())
        difference = float(abs(after[sibling] - before[sibling]))
        if difference > SAME and examples:
            example = Example(
                group=closed.group.id,
                sibling=sibling,
                prompt=closed.group.prompt.text,
                text=rollouts.texts[sibling],
                before=float(before[sibling]),
                after=float(after[sibling]),
            )
            heapq.heappush(self.differing, (difference, -len(self.before), example))
            if len(self.differing) > examples:
                heapq.heappop(self.differing)


def parts_of(asked: Sequence[str]) -> RewardSection:
    """`NAME`, a dotted path, or an inline table as in a run file. Raises Misconfigured."""
    parts: list[RewardPart] = []
    for one in asked:
        try:
            given = tomllib.loads(f"part = {one}")["part"] if one.lstrip().startswith("{") else {"name": one}
        except tomllib.TOMLDecodeError as error:
            raise Misconfigured(
                f"--reward {one}: {error}; nothing was scored; write a name, module:attribute, or a table such as "
                "'{name=\"length\", weight=0.5, options={target=20}}'"
            ) from None
        parts.append(load_section(RewardPart, "reward.parts", given))
    return RewardSection(parts=parts)


def rescore(
    folder: Path, section: RewardSection, *, kind: Kind | None, newest: int, examples: int, progress: Progress
) -> dict[str, Any]:
    """The comparison as plain facts. Raises Misconfigured for a reward that cannot be made, and for a run without
    scored groups.
    """
    reward = create(section)
    with GroupIndex(folder / "groups") as index:
        index.refresh()
        whole = index.search(kind=kind, reward=SCORED, limit=1).total
        found = scored_groups(index, kind, newest)
        comparison = asyncio.run(compared(found, reward, min(whole, newest or whole), examples, progress))
    if not comparison.before and not comparison.failed:
        raise Misconfigured(
            f"{folder.name} has no scored groups in its archive; nothing was scored; a run keeps them unless "
            "run.keep_groups is false"
        )
    return {"run": folder.name, "reward": [part.model_dump() for part in section.parts], **facts(comparison)}


def scored_groups(index: GroupIndex, kind: Kind | None, newest: int) -> Iterator[Closed]:
    """All of them, or the newest ones."""
    chosen = {row.id for row in index.search(kind=kind, reward=SCORED, limit=newest).rows} if newest else None
    for closed in index.read_all():
        group = closed.group
        is_asked = (kind is None or group.kind == kind) and (chosen is None or group.id in chosen)
        if is_asked and group.scores is not None and group.rollouts is not None:
            yield closed


async def compared(
    found: Iterator[Closed], reward: Reward, whole: int, examples: int, progress: Progress
) -> Comparison:
    """consumes: groups of the archive   produces: a comparison   waits for: the reward   unblocked by: its answers"""
    comparison, done = Comparison(), 0
    try:
        await reward.start()
        async for closed, answer in answers(found, reward):
            if isinstance(answer, Score):
                comparison.add(closed, answer, examples)
            else:
                reason = f"{type(answer).__name__}: {answer}".splitlines()[0]
                comparison.failed[reason] = comparison.failed.get(reason, 0) + 1
            done += 1
            progress(done, whole)
    finally:
        await reward.close()
    return comparison


async def answers(found: Iterator[Closed], reward: Reward) -> AsyncIterator[tuple[Closed, Score | Exception]]:
    """In the order in which the groups come, as many in hand as the reward has places for."""
    in_hand: list[tuple[Closed, asyncio.Task[Score]]] = []
    for closed in found:
        in_hand.append((closed, asyncio.create_task(reward.score(closed.group))))
        if len(in_hand) >= reward.capacity:
            yield await answered(*in_hand.pop(0))
    for closed, task in in_hand:
        yield await answered(closed, task)


async def answered(closed: Closed, task: asyncio.Task[Score]) -> tuple[Closed, Score | Exception]:
    try:
        return closed, await task
    except Misconfigured:
        raise
    except Exception as error:  # noqa: BLE001  whatever a rule raises is about its group
        return closed, error


def facts(comparison: Comparison) -> dict[str, Any]:
    """Numbers a person compares; over completions unless they say groups."""
    before, after = flat(comparison.before), flat(comparison.after)
    pairs = list(zip(comparison.before, comparison.after, strict=True))
    most = sorted(comparison.differing, key=lambda one: (-one[0], -one[1]))
    return {
        "groups": len(pairs),
        "completions": len(before),
        "failed": dict(comparison.failed),
        "mean": {"before": mean(before), "after": mean(after)},
        "deviation": {"before": mean(before, np.std), "after": mean(after, np.std)},
        "correlation": correlation(before, after),
        "changed": share([abs(b - a) > SAME for b, a in zip(before.tolist(), after.tolist(), strict=True)]),
        "groups_with_signal": {
            "before": share([bool(np.ptp(one) > SAME) for one, _ in pairs]),
            "after": share([bool(np.ptp(one) > SAME) for _, one in pairs]),
        },
        "groups_with_another_best": share([b[int(a.argmax())] < b.max() - SAME for b, a in pairs]),
        "parts": part_facts(comparison, after),
        "examples": [
            {name: getattr(one, name) for name in ("group", "sibling", "prompt", "text", "before", "after")}
            for _, _, one in most
        ],
    }


def part_facts(comparison: Comparison, rewards: NDArray[np.float32]) -> list[dict[str, Any]]:
    """One row per part of either reward; `correlation` between the two where both have it."""
    rows: list[dict[str, Any]] = []
    for name in dict.fromkeys([*comparison.parts_before, *comparison.parts_after]):
        old, new = flat(comparison.parts_before.get(name, [])), flat(comparison.parts_after.get(name, []))
        both = len(old) == len(new)
        row = {"part": name, "before": mean(old), "after": mean(new)}
        rows.append({**row, "correlation": correlation(old, new) if both else None})
    return rows


def flat(values: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    return np.concatenate(values) if values else np.zeros(0, np.float32)


def mean(values: NDArray[np.float32], of: Callable[..., Any] = np.mean) -> float | None:
    return round(float(of(values.astype(np.float64))), 6) if len(values) else None


def correlation(a: NDArray[np.float32], b: NDArray[np.float32]) -> float | None:
    """Pearson's; None where one of them never changes."""
    if len(a) < 2 or np.ptp(a) <= SAME or np.ptp(b) <= SAME:
        return None
    return round(float(np.corrcoef(a.astype(np.float64), b.astype(np.float64))[0, 1]), 6)


def share(facts: Sequence[bool]) -> float | None:
    return round(sum(facts) / len(facts), 6) if facts else None
