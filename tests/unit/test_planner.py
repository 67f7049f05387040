"""What is safe to move now: stories, every small fleet, and long random histories in which each plan is cut short.

I6: no pool below its min by a move, no slot moved inside its dwell. I8: epochs never go back.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from scheduler.legal_split import legal
from scheduler.lifecycle import Event, State
from scheduler.observation import Slot
from scheduler.placements.base import Targets
from scheduler.placements.pressure import Pressure
from scheduler.planner import Move, Rules, plan
from scheduler.pools import Pool
from tests.unit.fleets import POOLS, Obedient, bounded, fleet, seen, services

RULES = Rules(dwell_s=30.0, drain_s=60.0)


def insisting(**split: int) -> Targets:
    return Targets(split=split, reason="a person wants it", insists=True)


def test_slots_move_from_where_there_are_too_many_to_where_there_are_too_few() -> None:
    decision = plan(seen(fleet({"rollout": 5, "train": 1})), POOLS, insisting(rollout=3, judge=1, train=2), RULES)
    assert Counter((move.source, move.target) for move in decision.moves) == {
        ("rollout", "judge"): 1,
        ("rollout", "train"): 1,
    }
    assert decision.sentence.startswith("move 1 rollout → judge, 1 rollout → train: a person wants it")


def test_staying_is_a_decision_with_its_reason() -> None:
    slots = fleet({"rollout": 2, "train": 1})
    decision = plan(seen(slots), POOLS, insisting(rollout=2, train=1), RULES)
    assert decision.stays
    assert decision.sentence == "stay: a person wants it"


def test_a_slot_stays_for_its_dwell() -> None:
    slots = fleet({"rollout": 3}, since=980.0)
    for now, moves in ((1009.9, 0), (1010.0, 1)):
        decision = plan(seen(slots, now=now), POOLS, insisting(rollout=2, train=1), RULES)
        assert len(decision.moves) == moves
    assert "has not stayed 30 s yet" in plan(seen(slots), POOLS, insisting(train=3), RULES).sentence


def test_a_slot_with_unsettled_work_is_given_until_its_deadline_and_an_empty_one_none() -> None:
    busy, idle = fleet({"rollout": 1}, holds=True)[0], replace(fleet({"rollout": 1})[0], id="idle")
    decision = plan(seen([busy, idle], now=500), POOLS, insisting(train=2), RULES)
    assert {move.slot: move.drain_by for move in decision.moves} == {busy.id: 560.0, "idle": 500.0}


def test_slots_without_work_are_moved_first() -> None:
    slots = (*fleet({"rollout": 5}, holds=True), Slot(id="idle", pool="rollout", state=State.SERVING, since=900.0))
    decision = plan(seen(slots), POOLS, insisting(rollout=5, train=1), RULES)
    assert [move.slot for move in decision.moves] == ["idle"]


def test_a_draining_slot_is_left_alone_until_it_has_left() -> None:
    draining = replace(fleet({"rollout": 1})[0], state=State.DRAINING, bound_for="train", drain_by=2000.0, holds=True)
    assert plan(seen([draining]), POOLS, insisting(rollout=1), RULES).stays


def test_what_a_pool_was_given_is_not_taken_away_before_it_arrived() -> None:
    slots = (*fleet({"rollout": 3}), replace(fleet({"rollout": 1})[0], id="new", state=State.MOVING))
    decision = plan(seen(slots), POOLS, insisting(rollout=2, train=2), RULES)
    assert decision.stays
    assert "still on their way to rollout" in decision.sentence


def test_pinned_slots_are_not_moved() -> None:
    slots = [replace(slot, pinned=True) for slot in fleet({"rollout": 2})]
    assert plan(seen(slots), POOLS, insisting(train=2), RULES).stays


def test_a_second_trainer_comes_only_after_the_first_has_left() -> None:
    pools = bounded(train=(0, 1))
    leaving = replace(fleet({"train": 1})[0], state=State.DRAINING, bound_for="rollout", drain_by=2000.0, holds=True)
    slots = (leaving, *fleet({"rollout": 2}))
    decision = plan(seen(slots), pools, insisting(rollout=2, train=1), RULES)
    assert decision.stays
    assert "a slot must first leave train" in decision.sentence


def test_a_move_that_costs_more_than_it_gains_is_not_made() -> None:
    slots = fleet({"rollout": 3, "judge": 1, "train": 1})
    wish = Targets(split={"rollout": 2, "judge": 1, "train": 2}, reason="a whim")
    decision = plan(seen(slots, prompts=45, service=services(move_s=200)), POOLS, wish, RULES)
    assert decision.stays
    assert "more than it gains (a whim)" in decision.sentence


def test_moving_takes_no_more_than_its_share_of_time() -> None:
    slots = fleet({"rollout": 64})
    decision = plan(seen(slots, moves=[990.0] * 100), POOLS, insisting(train=64), RULES)
    used_up = int(0.02 * 64 * 1800 / 10)
    assert len(decision.moves) == min(63, used_up - 100) or len(decision.moves) == min(64, used_up - 100)
    full = plan(seen(slots, moves=[990.0] * used_up), POOLS, insisting(train=64), RULES)
    assert full.stays
    assert "2% of all slots' time has gone into moves" in full.sentence


def idlers(pool: str, count: int) -> tuple[Slot, ...]:
    """Slots of a pool that came a moment ago and hold nothing."""
    return fleet({pool: count}, since=999.0)


def test_a_slot_with_nothing_to_do_is_held_by_neither_its_dwell_nor_the_share_of_time() -> None:
    observation = seen(idlers("judge", 4), prompts=48, moves=[990.0] * 10_000)
    decision = plan(observation, POOLS, insisting(rollout=4), RULES)
    assert len(decision.moves) == 4
    assert all(move.idle and move.drain_by == observation.now for move in decision.moves)


def test_work_that_would_not_fill_what_a_move_takes_draws_no_slot() -> None:
    judges, busy = idlers("judge", 4), fleet({"rollout": 3}, since=999.0, holds=True)
    decision = plan(seen((*judges, *busy), prompts=6), POOLS, insisting(rollout=7), RULES)
    assert decision.stays, "36 slot-seconds are less than 10 for each of four slots"
    decision = plan(seen((*judges, *busy), prompts=9), POOLS, insisting(rollout=7), RULES)
    assert len(decision.moves) == 2, "54 are enough for five"


@pytest.mark.parametrize(("rollouts", "scored", "idle"), [(0, 11, True), (2, 11, False), (0, 12, False)])
def test_a_slot_has_nothing_to_do_when_its_pool_has_no_work_or_less_than_a_batch(
    rollouts: int, scored: int, *, idle: bool
) -> None:
    slots = (*idlers("judge", 2), *idlers("train", 2))
    observation = seen(slots, prompts=48, rollouts=rollouts, scored=scored)
    decision = plan(observation, POOLS, insisting(rollout=4), RULES)
    source = "judge" if rollouts else "train"
    assert any(move.source == source for move in decision.moves) is idle


def test_a_slot_that_just_came_and_finds_work_stays() -> None:
    observation = seen(idlers("rollout", 3), prompts=20, scored=12, moves=())
    assert plan(observation, POOLS, insisting(train=3), RULES).stays


def test_pool_minima_hold_slots_that_have_nothing_to_do() -> None:
    pools = bounded(judge=(1, None))
    decision = plan(seen(idlers("judge", 3), prompts=48), pools, insisting(rollout=3), RULES)
    assert len(decision.moves) == 2


def test_a_fleet_too_small_for_its_share_moves_one_slot_per_dwell() -> None:
    slots, dear = fleet({"rollout": 1}), services(move_s=40)
    for ago, moves in ((10.0, 0), (31.0, 1)):
        observation = seen(slots, service=dear, moves=[1000.0 - ago])
        assert len(plan(observation, POOLS, insisting(train=1), RULES).moves) == moves


def test_a_pool_under_its_min_is_mended_whatever_that_costs() -> None:
    pools = bounded(judge=(1, None))
    slots = fleet({"rollout": 3, "train": 1})
    decision = plan(
        seen(slots, service=services(move_s=10_000)), pools, Targets(split={"rollout": 3, "train": 1}, reason=""), RULES
    )
    assert [(move.source, move.target) for move in decision.moves] == [("rollout", "judge")]


def test_too_few_slots_for_all_minima_meet_them_in_the_order_work_flows() -> None:
    pools = bounded(rollout=(1, None), judge=(1, None), train=(1, None))
    assert legal({}, pools, 2, {}) == {"rollout": 1, "judge": 1, "train": 0}


LIMITS = ((0, None), (1, None), (0, 1), (1, 2))


def small_fleets() -> Iterator[tuple[tuple[Slot, ...], tuple[Pool, ...], Mapping[str, int]]]:
    """Every division of up to 4 slots over 3 pools and nobody, for every target and several limits."""
    names = [pool.name for pool in POOLS]
    for size in range(1, 5):
        targets = [
            dict(zip(names, split, strict=True))
            for split in itertools.product(range(size + 1), repeat=3)
            if sum(split) == size
        ]
        for where in itertools.combinations_with_replacement(["", *names], size):
            slots = tuple(
                Slot(id=f"s{n}", pool=pool, state=State.SERVING if pool else State.VACANT)
                for n, pool in enumerate(where)
            )
            for limit in itertools.product(LIMITS, repeat=3):
                most = sum(size if high is None else high for _, high in limit)
                if sum(low for low, _ in limit) <= size <= most:
                    for target in targets[:: 1 if size < 4 else 3]:
                        yield slots, bounded(**dict(zip(names, limit, strict=True))), target


def test_every_small_fleet_reaches_its_legal_target_in_moves_that_are_each_safe() -> None:
    stories = 0
    for slots, pools, target in small_fleets():
        stories += 1
        world = Obedient({slot.id: slot for slot in slots}, now=1000.0)
        for _ in range(12):
            decision = plan(seen(tuple(world.slots.values()), now=world.now), pools, insisting(**target), RULES)
            if not decision.moves:
                break
            low = {pool.name: min(pool.min, world.serving(pool.name)) for pool in pools}
            world.carry_out(decision, only_first=True)
            for pool in pools:
                assert pool.max is None or world.present(pool.name) <= max(
                    pool.max, Counter(slot.pool for slot in slots)[pool.name]
                )
                assert world.serving(pool.name) >= low[pool.name]
            world.arrive()
            world.now += 100.0
        counts = Counter(slot.pool for slot in world.slots.values() if slot.pool)
        now = {pool.name: counts[pool.name] for pool in pools}
        wanted = legal(target, pools, len(slots), now)
        assert now == wanted, f"{slots} {pools} {target}"
    assert stories > 5000


class Fleets(RuleBasedStateMachine):
    """A fleet under real placement and planner: slots die, crash, come back; every plan is cut at a random point."""

    @initialize(
        size=st.integers(1, 9),
        minima=st.tuples(*[st.integers(0, 1)] * 3),
        train_max=st.sampled_from([None, 1, 2]),
    )
    def begin(self, size: int, minima: tuple[int, ...], train_max: int | None) -> None:
        rollout, judge, train = minima
        self.pools = bounded(rollout=(rollout, None), judge=(judge, None), train=(train, train_max))
        self.world = Obedient.vacant(size)
        self.queues = {"prompts": 3 * size * 4, "rollouts": 0, "scored": 0}
        self.epochs = dict.fromkeys(self.world.slots, 0)

    @rule(seconds=st.sampled_from([1.0, 10.0, 31.0, 70.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.now += seconds
        self.world.overrun()

    @rule(
        source=st.sampled_from(["prompts", "rollouts", "scored"]),
        onward=st.sampled_from(["prompts", "rollouts", "scored"]),
        share=st.floats(0, 1),
    )
    def groups_flow(self, source: str, onward: str, share: float) -> None:
        count = int(self.queues[source] * share)
        self.queues[source] -= count
        self.queues[onward] += count

    @rule(
        number=st.integers(0, 8),
        event=st.sampled_from([e for e in Event if e not in (Event.ASSIGNED, Event.UNASSIGNED, Event.OVERRAN)]),
    )
    def something_happens(self, number: int, event: Event) -> None:
        self.world.happens(list(self.world.slots)[number % len(self.world.slots)], event)

    @rule(number=st.integers(0, 8), holds=st.booleans())
    def work_is_taken_or_settled(self, number: int, holds: bool) -> None:
        name = list(self.world.slots)[number % len(self.world.slots)]
        if self.world.slots[name].state in (State.SERVING, State.DRAINING):
            self.world.slots[name] = replace(self.world.slots[name], holds=holds)

    @rule(cut=st.integers(0, 9), known=st.booleans(), wish=st.none() | st.tuples(*[st.integers(0, 9)] * 3))
    def the_scheduler_plans_and_is_cut_off(self, cut: int, known: bool, wish: tuple[int, ...] | None) -> None:
        world = self.world
        observation = seen(
            tuple(world.slots.values()),
            now=world.now,
            **self.queues,
            service=services() if known else {},
            moves=tuple(world.ordered),
        )
        targets = (
            Pressure().targets(observation, self.pools)
            if wish is None
            else insisting(**dict(zip((pool.name for pool in self.pools), wish, strict=True)))
        )
        decision = plan(observation, self.pools, targets, RULES)
        assert len({move.slot for move in decision.moves}) == len(decision.moves), "one move per slot"
        for move in decision.moves[:cut]:
            self.check(move)
            before = {pool.name: world.serving(pool.name) for pool in self.pools}
            present = {pool.name: world.present(pool.name) for pool in self.pools}
            world.obey(move)
            for pool in self.pools:
                if world.serving(pool.name) < before[pool.name]:
                    assert world.serving(pool.name) >= pool.min
                if pool.max is not None and world.present(pool.name) > present[pool.name]:
                    assert world.present(pool.name) <= pool.max

    def check(self, move: Move) -> None:
        slot = self.world.slots[move.slot]
        assert slot.state in (State.VACANT, State.SERVING)
        assert slot.pool == move.source
        if move.idle:
            assert not slot.holds, "it leaves no work"
            assert sum(self.queues.values()) > 0, "it goes to work"
        elif move.source:
            assert self.world.now - slot.since >= RULES.dwell_s

    @invariant()
    def no_slot_is_lost_or_in_two_pools(self) -> None:
        for slot in self.world.slots.values():
            assert slot.epoch >= self.epochs[slot.id]
            self.epochs[slot.id] = slot.epoch
            if slot.state in (State.VACANT, State.DEAD):
                assert slot.belongs == ""
            elif slot.state is not State.PARKED:
                assert slot.belongs in {pool.name for pool in self.pools}

    @invariant()
    def every_drain_ends_by_its_deadline(self) -> None:
        for slot in self.world.slots.values():
            if slot.state is State.DRAINING:
                assert slot.drain_by <= slot.since + RULES.drain_s


TestFleets = Fleets.TestCase
TestFleets.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_a_fleet_of_any_size_that_is_left_alone_comes_to_rest(size: int) -> None:
    """The same observation again and again ends in staying: nothing moves back and forth by itself."""
    world, last = Obedient.vacant(size), "nothing was decided"
    for _ in range(60):
        observation = seen(tuple(world.slots.values()), now=world.now, prompts=12 * size, moves=tuple(world.ordered))
        decision = plan(observation, POOLS, Pressure().targets(observation, POOLS), RULES)
        world.carry_out(decision)
        world.arrive()
        world.now += 40.0
        last = decision.sentence
    assert last.startswith("stay: ")
    assert len(world.ordered) <= 2 * size
