"""Pools: the kinds of work a slot can be given. They are data, so a new kind is a section of the run file and no code.

For: what a pool is, the three that are shipped, and whether pools and slots fit each other. Not for: how many slots a
pool should have now (`placements`), nor what a slot runs (`slots`).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from broker.errors import Misconfigured
from broker.streams import PROMPTS, ROLLOUTS, SCORED, WORK_STREAMS


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """One kind of slot."""

    name: str
    stream: str
    """The work stream it takes from."""
    command: str
    """What its slots run, as `python -m COMMAND`."""
    min: int = 0
    """Slots it never goes below."""
    max: int | None = None
    """Slots it never goes above; None for no limit."""
    move_cost: float = 0.0
    """Seconds a slot is lost for when it moves here; 0 uses what was measured."""

    def most(self, slots: int) -> int:
        """Slots it may have, of so many."""
        return slots if self.max is None else min(self.max, slots)


SHIPPED = {
    pool.name: pool
    for pool in (
        Pool(name="rollout", stream=PROMPTS, command="producers rollout"),
        Pool(name="judge", stream=ROLLOUTS, command="consumers judge"),
        Pool(name="train", stream=SCORED, command="consumers trainer", max=1),
    )
}
"""Rule rewards run on CPU workers beside the slots; where a part of the reward needs a slot, `judge` scores all groups
instead. The trainer leads its ranks inside one slot."""


class PoolSettings(Protocol):
    """What a `[pools.NAME]` section says; empty texts, 0 and None leave a shipped pool as it is."""

    stream: str
    command: str
    min: int
    max: int | None
    move_cost: float


def resolved(name: str, section: PoolSettings) -> Pool:
    """A shipped pool with what its section changes, or a pool of one's own. Raises Misconfigured."""
    shipped = SHIPPED.get(name)
    if shipped is None and not (section.stream and section.command):
        near = difflib.get_close_matches(name, SHIPPED, n=1)
        hint = (f'did you mean "{near[0]}"? ' if near else "") + f"shipped pools: {', '.join(SHIPPED)}"
        raise Misconfigured(
            f"[pools.{name}]: a pool of one's own needs stream and command; nothing was started; {hint}"
        )
    base = shipped or Pool(name=name, stream=section.stream, command=section.command)
    pool = replace(
        base,
        stream=section.stream or base.stream,
        command=section.command or base.command,
        min=section.min,
        max=base.max if section.max is None else section.max,
        move_cost=section.move_cost,
    )
    if pool.stream not in WORK_STREAMS:
        raise Misconfigured(
            f'[pools.{name}] stream = "{pool.stream}" is no work stream; nothing was started; '
            f"choose one of {', '.join(WORK_STREAMS)}"
        )
    if pool.max is not None and pool.max < pool.min:
        raise Misconfigured(
            f"[pools.{name}]: max = {pool.max} is below min = {pool.min}; nothing was started; raise max"
        )
    return pool


def needs_slot(reward: Mapping[str, Any]) -> bool:
    """Whether a run's saved `[reward]`, where every part says where it is scored, has one for a slot."""
    return any(part.get("on") == "slot" for part in reward["parts"])


def pools_in_use(sections: Mapping[str, PoolSettings], *, judged: bool) -> tuple[Pool, ...]:
    """The pools of a run in the order work flows; `judge` only when a reward needs a model. Raises Misconfigured, also
    for two pools that take from one stream: nobody could say which of them its backlog is for.
    """
    shipped = [name for name in SHIPPED if judged or name != "judge"]
    named = [*shipped, *(name for name in sections if name not in SHIPPED)]
    pools = [resolved(name, sections[name]) if name in sections else SHIPPED[name] for name in named]
    by_stream: dict[str, Pool] = {}
    for pool in pools:
        other = by_stream.setdefault(pool.stream, pool)
        if other is not pool:
            raise Misconfigured(
                f'[pools.{pool.name}] stream = "{pool.stream}" is what {other.name} takes from; nothing was started; '
                f"give [pools.{other.name}] the command instead, or {pool.name} a stream of its own"
            )
    return tuple(by_stream[stream] for stream in WORK_STREAMS if stream in by_stream)


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """How many slots there can be, and why no more."""

    slots: int
    why: str
    instead: str = ""
    """What else may be done about it."""


def check_fleet(pools: Sequence[Pool], slots: int, room: Room) -> None:
    """Whether so many slots can be and serve these pools. Raises Misconfigured with both numbers."""
    if slots < 1:
        raise Misconfigured(f"{slots} slots cannot run anything; nothing was started; ask for 1 or more")
    if slots > room.slots:
        instead = f"; {room.instead}" if room.instead else ""
        raise Misconfigured(
            f"{slots} slots were asked for and {room.why}; nothing was started; ask for {room.slots} or fewer{instead}"
        )
    needed = sum(pool.min for pool in pools)
    if needed > slots:
        terms = " + ".join(f"{pool.name} {pool.min}" for pool in pools if pool.min)
        raise Misconfigured(
            f"[pools] min: {needed} slots ({terms}) of {in_words(slots, 'slot')}; nothing was started; "
            f"lower a pool's min, or have {needed} slots"
        )
    if all(pool.max is not None for pool in pools) and (most := sum(pool.most(slots) for pool in pools)) < slots:
        raise Misconfigured(
            f"[pools] max: {in_words(most, 'slot')} of {slots} could ever work; nothing was started; "
            f"raise a pool's max, or have {most} slots"
        )


def check_split(pools: Sequence[Pool], slots: int, split: Mapping[str, int]) -> None:
    """Whether a division that a person wrote down can be. Raises Misconfigured."""
    where = "[scheduler] split"
    known = {pool.name: pool for pool in pools}
    if unknown := [name for name in split if name not in known]:
        raise Misconfigured(f'{where}: no pool "{unknown[0]}"; nothing was started; pools: {", ".join(known)}')
    for name, count in split.items():
        low, high = known[name].min, known[name].most(slots)
        if not low <= count <= high:
            raise Misconfigured(f"{where}: {name} = {count}; nothing was started; it may have {low} to {high} slots")
    if (total := sum(split.values())) > slots:
        raise Misconfigured(f"{where}: {total} slots of {in_words(slots, 'slot')}; nothing was started; lower one")


def pool_named(name: str, pools: Iterable[Pool]) -> Pool:
    """The pool of that name. Raises Misconfigured with the names there are."""
    known = {pool.name: pool for pool in pools}
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        meant = f'did you mean "{near[0]}"? ' if near else ""
        raise Misconfigured(f'"{name}" is no pool of this run; nothing was moved; {meant}pools: {", ".join(known)}')
    return known[name]


def in_words(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
