"""The simulated fleet: it keeps the run's own rules, loses no group, and shows what the scheduler is worth."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from broker.admission import first_at_risk
from broker.errors import Misconfigured
from scheduler.lifecycle import State
from scheduler.observation import Service
from scheduler.placements.fixed import Fixed
from scheduler.placements.pressure import Pressure
from scheduler.settings import SchedulerSection
from scheduler.simulation.colocation import colocated, slot_s
from scheduler.simulation.comparison import COLOCATED, ORACLE, STATIC, compare
from scheduler.simulation.controllers import Scheduled, static
from scheduler.simulation.gang import Gang, last_at_risk
from scheduler.simulation.scaling import fluid_slots, gang_speed, least_slot_s
from scheduler.simulation.shared_slot import SharedSlot
from scheduler.simulation.static_search import best_static, every, ranked
from scheduler.simulation.workload import Cargo, Workload
from scheduler.simulation.workloads import WORKLOADS, workload_named
from scheduler.simulation.world import World

SHAPE = Service(item_s=0.0, places=4, half_at=1.0)


def small(name: str, versions: int = 12) -> Workload:
    return WORKLOADS[name].shortened(versions)


def test_groups_in_hand_share_the_slots_speed() -> None:
    slot = SharedSlot("a")
    slot.enter("rollout", SHAPE)
    alone = slot.take(1, 10.0, now=0.0)
    assert alone == pytest.approx(10 / SHAPE.speed(1))
    together = slot.take(2, 1.0, now=0.0)
    assert together == pytest.approx(2 / SHAPE.speed(2)), "both have advanced by one second of work"
    assert slot.finish(together) == 2
    assert slot.next_done() == pytest.approx(together + 9 / SHAPE.speed(1))
    assert slot.spent_s == pytest.approx(1.0)


def test_what_is_given_back_has_lost_nothing_but_is_told_exactly() -> None:
    slot = SharedSlot("a")
    slot.enter("rollout", SHAPE)
    slot.take(1, 10.0, now=0.0)
    assert slot.give_back(now=8.0) == [(1, pytest.approx(10 - 8 * SHAPE.speed(1)))]
    assert slot.jobs == []


def test_a_phase_lasts_as_long_as_its_longest_group_asks() -> None:
    assert slot_s([3.0], SHAPE) == pytest.approx(3 / SHAPE.speed(1))
    assert slot_s([3.0] * 8, SHAPE) == pytest.approx(24.0), "full all the time, at full speed"
    assert slot_s([1.0, 100.0], SHAPE) > slot_s([50.5, 50.5], SHAPE)


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_workload_keeps_the_bound_and_loses_no_group(name: str) -> None:
    """The bound on staleness is asserted at every step; then the books must balance."""
    load = replace(small(name), failures_per_slot_hour=2.0, repair_s=60.0)
    world = World(Cargo(load, 3, 9), Scheduled("pressure", Pressure(), load))
    outcome = world.run()
    assert outcome.trained == load.versions * load.groups(9)
    assert 0 <= outcome.staleness_mean <= outcome.staleness_max <= load.staleness
    assert world.admitted == outcome.trained + world.retired + len(world.last)
    assert len(world.last) == sum(world.backlog.values()) <= world.cap
    in_hand = sum(len(slot.jobs) for slot in world.slots.values())
    waiting = sum(len(pool.waiting) for pool in world.pools.values())
    assert in_hand + waiting + len(world.gang.ready) + len(world.gang.batch) == len(world.last)


def test_the_same_seed_gives_the_same_run_and_another_another() -> None:
    load = small("failures")
    runs = [World(Cargo(load, seed, 6), Scheduled("pressure", Pressure(), load)).run().seconds for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]


@pytest.mark.parametrize("slots", [1, 2, 3, 5])
def test_fewer_slots_than_pools_time_share_and_the_run_completes(slots: int) -> None:
    load = small("constant", versions=16)
    outcome = World(Cargo(load, 0, slots), Scheduled("pressure", Pressure(), load)).run()
    assert outcome.trained == 16 * load.groups(slots)
    assert outcome.throughput > 0.5 * Cargo(load, 0, slots).fluid_throughput()
    shortest = min(shape.move_s for shape in load.shapes.values())
    assert outcome.moves <= slots * outcome.seconds / (2 * shortest), "as much work as moving"
    assert outcome.lost < 0.2


def test_a_lone_slot_goes_round_the_line_as_soon_as_the_work_in_hand_ends() -> None:
    load = small("constant", versions=16)
    controller = Scheduled("pressure", Pressure(), load)
    world = World(Cargo(load, 0, 1), controller, records=True)
    course = world.run().course
    line = ["rollout", "judge", "train"]
    ways = [(move.source, move.target) for one in controller.decisions for move in one.moves if move.source]
    assert len(ways) >= 12
    assert all(line.index(target) == (line.index(source) + 1) % 3 for source, target in ways)
    for at, decision in enumerate(controller.decisions[2:-1], start=2):
        for pool, enough in zip(line, (1, 1, world.groups), strict=True):
            if course[f"slots.{pool}"][at] and course[f"backlog.{pool}"][at] < enough:
                assert decision.moves, f"it stands idle in {pool} at {decision.at:.0f} s: {decision.sentence}"


def test_no_slot_is_moved_twice_within_its_dwell_and_each_ends_somewhere() -> None:
    load = small("drift", versions=20)
    controller = Scheduled("pressure", Pressure(), load)
    world = World(Cargo(load, 0, 16), controller)
    world.run()
    ordered: dict[str, float] = {}
    for decision in controller.decisions:
        for move in decision.moves:
            assert move.idle or decision.at - ordered.get(move.slot, -1e9) >= controller.rules.dwell_s
            ordered[move.slot] = decision.at
    assert all(slot.state in (State.SERVING, State.MOVING, State.DRAINING) for slot in world.slots.values())


def test_under_constant_load_throughput_is_within_five_percent_of_the_fluid_optimum() -> None:
    load = WORKLOADS["constant"].shortened(60)
    cargo = Cargo(load, 0, 64)
    outcome = World(cargo, Scheduled("pressure", Pressure(), load)).run()
    assert outcome.steady > 0.95 * cargo.fluid_throughput()
    assert outcome.switching < 0.02
    assert outcome.moves_per_hour / 64 < 4


def test_under_a_heavy_tail_slots_do_not_follow_noise() -> None:
    load = WORKLOADS["heavy-tail"].shortened(80)
    cargo = Cargo(load, 1, 64)
    outcome = World(cargo, Scheduled("pressure", Pressure(), load)).run()
    assert outcome.throughput > 2 * colocated(cargo).throughput
    assert outcome.switching < 0.02
    assert outcome.moves_per_hour / 64 < 2


@pytest.mark.parametrize("seed", [0, 6, 8])
def test_a_fleet_that_spent_its_moves_at_the_start_is_not_left_idle(seed: int) -> None:
    """Nor one whose first groups were dropped, or whose first step is long in coming."""
    load = WORKLOADS["dynamic-sampling"].shortened(80)
    cargo = Cargo(load, seed, 64)
    outcome = World(cargo, Scheduled("pressure", Pressure(), load)).run()
    assert outcome.throughput > 0.9 * cargo.fluid_throughput()


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_a_thousand_slots_are_within_five_percent_of_the_fluid_optimum_too() -> None:
    load = WORKLOADS["constant"].shortened(40)
    cargo = Cargo(load, 0, 1024)
    outcome = World(cargo, Scheduled("pressure", Pressure(), load)).run()
    assert outcome.steady > 0.95 * cargo.fluid_throughput()
    assert outcome.switching < 0.02


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["drift", "judge-heavy"])
def test_under_drift_most_of_what_an_oracle_gains_over_the_best_static_split_is_gained(name: str) -> None:
    one = compare(WORKLOADS[name].shortened(200), 64, [0, 1, 2], SchedulerSection())
    assert one.ratios()["of_oracles_gain"] > 0.8, one.ratios()
    assert one.mean("pressure", "switching_share") < 0.02
    assert one.mean("pressure", "moves_per_slot_hour") < 3


def test_when_lengths_drift_slots_go_from_judging_to_training() -> None:
    load = WORKLOADS["drift"].shortened(40)
    world = World(Cargo(load, 0, 32), Scheduled("pressure", Pressure(), load), records=True)
    course = world.run().course
    third = len(course["seconds"]) // 3
    early = {pool: sum(course[f"slots.{pool}"][third // 2 : third]) for pool in ("judge", "train")}
    late = {pool: sum(course[f"slots.{pool}"][-third // 2 :]) for pool in ("judge", "train")}
    assert late["judge"] < early["judge"]
    assert late["train"] > early["train"]


def test_a_course_shows_training_while_it_goes_on() -> None:
    """A step is booked when it ends; a picture of busy shares must not leap there."""
    load = WORKLOADS["drift"].shortened(20)
    course = World(Cargo(load, 0, 32), Scheduled("pressure", Pressure(), load), records=True).run().course
    useful, slots, seconds = course["useful_s.train"], course["slots.train"], course["seconds"]
    assert useful == sorted(useful)
    for at in range(1, len(seconds)):
        most = max(slots[max(0, at - 12) : at + 1]) + 1
        assert useful[at] - useful[at - 1] <= most * (seconds[at] - seconds[at - 1]) + 1e-6


def test_seeds_played_at_once_give_the_same_figures() -> None:
    load = small("constant", versions=6)
    alone, together = (compare(load, 6, [0, 1], SchedulerSection(), processes=count) for count in (1, 2))
    assert alone.facts() == together.facts()


def test_all_divisions_are_ranked_and_the_best_found_is_better_than_its_neighbours() -> None:
    load = small("constant", versions=10)
    cargo = Cargo(load, 0, 12)
    assert len(ranked(cargo)) == len(list(every(12))) == 55
    best = best_static(cargo)
    found = World(cargo, static(load, best)).run().seconds
    for source, target in (("rollout", "train"), ("rollout", "judge"), ("train", "rollout")):
        other = {**best, source: best[source] - 1, target: best[target] + 1}
        if other[source] >= 1:
            assert found <= World(cargo, static(load, other)).run().seconds


def test_a_comparison_plays_every_system_on_the_same_groups() -> None:
    load = small("judge-heavy", versions=10)
    one = compare(load, 12, [0, 1], SchedulerSection())
    assert set(one.outcomes) == {"pressure", STATIC, COLOCATED, "utilisation rule", ORACLE}
    assert all(len(found) == 2 for found in one.outcomes.values())
    assert all(
        found.throughput <= fluid
        for runs in one.outcomes.values()
        for found, fluid in zip(runs, one.fluid, strict=True)
    )
    facts = one.facts()
    assert facts["systems"]["pressure"]["groups_per_s"]["each"][0] > 0
    assert facts["ratios"]["of_fluid"] == pytest.approx(one.mean("pressure") / facts["fluid_groups_per_s"])


def test_slots_in_no_pool_of_a_fixed_division_do_nothing() -> None:
    load = small("constant", versions=3)
    world = World(Cargo(load, 0, 4), Scheduled("fixed", Fixed(split={"rollout": 2, "judge": 1, "train": 1}), load))
    assert world.run().moves == 0


def test_synchronous_colocation_waits_for_the_longest_of_each_batch() -> None:
    even, tail = (
        colocated(Cargo(replace(WORKLOADS["constant"], spread=spread, versions=10), 0, 16)) for spread in (0.01, 1.0)
    )
    assert tail.busy < even.busy


def test_an_unknown_workload_is_answered_with_those_there_are() -> None:
    with pytest.raises(Misconfigured, match=r'did you mean "drift"\? workloads: constant, drift'):
        workload_named("drfit")


@pytest.mark.parametrize("seed", range(20))
def test_counting_open_groups_by_last_version_finds_what_the_runs_own_rule_finds(seed: int) -> None:
    chance = Random(seed)
    groups, version = chance.randint(1, 6), chance.randint(0, 5)
    lasts = sorted(version + chance.randint(0, 4) for _ in range(chance.randint(0, 30)))
    rank = first_at_risk(lasts, version, groups)
    counted = {last: lasts.count(last) for last in range(version, version + 5)}
    assert last_at_risk(counted, version, groups) == (None if rank is None else lasts[rank])


def test_a_gang_of_twice_the_members_is_as_much_faster_as_was_said() -> None:
    seconds: list[float] = []
    for members in (4, 8):
        gang = Gang(groups=1, step_s=0.0, scaling=0.8)
        gang.members = dict.fromkeys(map(str, range(members)))
        seconds.append(gang.begin(100.0, now=0.0))
    assert seconds[0] / seconds[1] == pytest.approx(2**0.8)
    assert seconds[0] == pytest.approx(100 / 4**0.8)


@pytest.mark.parametrize("scaling", [0.38, 0.8, 1.0])
@pytest.mark.parametrize("slots", [3, 64, 1000])
def test_at_the_fluid_division_of_a_gang_that_scales_badly_no_pool_waits(slots: int, scaling: float) -> None:
    work = (300.0, 60.0, 90.0)
    rollout, judge, train = fluid_slots(work, slots, scaling)
    assert rollout + judge + train == pytest.approx(slots)
    paces = [rollout / work[0], judge / work[1], gang_speed(train, scaling) / work[2]]
    assert paces == [pytest.approx(paces[0])] * 3
    assert least_slot_s(work[0] + work[1], work[2], slots, scaling) == pytest.approx(slots / paces[0])


def test_where_training_scales_badly_the_right_division_is_found_by_measuring() -> None:
    """Nobody tells the scheduler how it scales: a step's slot-seconds grow with the gang, until no pool waits."""
    load = replace(WORKLOADS["constant"].shortened(40), scaling=0.6)
    cargo = Cargo(load, 0, 64)
    world = World(cargo, Scheduled("pressure", Pressure(), load), records=True)
    outcome = world.run()
    assert outcome.steady > 0.9 * cargo.fluid_throughput()
    late = outcome.course["slots.train"][-len(outcome.course["seconds"]) // 3 :]
    best = fluid_slots(cargo.work_by_version().sum(axis=0).tolist(), 64, 0.6)[-1]
    linear = fluid_slots(cargo.work_by_version().sum(axis=0).tolist(), 64, 1.0)[-1]
    assert abs(sum(late) / len(late) - best) < 0.25 * (best - linear)


def test_every_system_pays_for_a_gang_that_scales_badly() -> None:
    linear, bad = (
        compare(replace(small("drift", 10), scaling=scaling), 12, [0], SchedulerSection()) for scaling in (1.0, 0.5)
    )
    assert bad.fluid[0] < linear.fluid[0]
    assert bad.static["train"] > linear.static["train"]
    for system in (STATIC, COLOCATED, ORACLE):
        assert bad.mean(system) < 0.95 * linear.mean(system), system
    assert all(found.throughput <= bad.fluid[0] for (found,) in bad.outcomes.values())


@pytest.mark.parametrize(("name", "slots", "seed"), [("heavy-tail", 3, 2), ("heavy-tail", 2, 0), ("drift", 2, 0)])
def test_a_trainer_that_waits_for_a_group_in_a_pool_without_slots_is_not_waited_for(
    name: str, slots: int, seed: int
) -> None:
    """It has batches enough, and none without that group is legal: only a slot that leaves it ends this."""
    load = small(name, versions=20)
    cargo = Cargo(load, seed, slots)
    outcome = World(cargo, Scheduled("pressure", Pressure(), load)).run()
    assert outcome.throughput > 0.4 * cargo.fluid_throughput()
