"""How a run is found, opened, lost and restored; who entered an earlier opening changes nothing in a later one."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence

import pytest

from broker.contract import RunState
from broker.errors import Reset, Unavailable
from broker.messages import Delivery
from broker.outcomes import Forward, Recycle, Release, Retire
from broker.streams import PROMPTS, ROLLOUTS, SCORED
from tests.contract.broker_world import (
    Broker,
    Trainer,
    World,
    admit,
    group,
    groups,
    insist,
    join,
    open_run,
    pass_on,
    rolled,
    score,
    step,
    take,
    version,
)

pytestmark = pytest.mark.asyncio

Verbs = dict[str, Callable[[], Awaitable[object]]]


def verbs(broker: Broker, asked: Sequence[Delivery]) -> Verbs:
    """Everything a process may try on a run it entered, with deliveries it got then."""
    return {
        "admit": lambda: broker.admit(3, "late", groups(1, start=50)),
        "admit_eval": lambda: broker.admit_eval(0, 0, [group("eval/0/0", "eval")]),
        "readmit": lambda: broker.readmit(groups(1)),
        "exhausted": lambda: broker.exhausted(3),
        "read": lambda: broker.read(PROMPTS, "w", count=1, block_s=0),
        "reread": lambda: broker.reread(PROMPTS, "w"),
        "inherit": lambda: broker.inherit(PROMPTS, "w", "slot"),
        "adopt": lambda: broker.adopt(PROMPTS, "w", idle_s=0, count=1),
        "renew": lambda: broker.renew("w", asked),
        "forward": lambda: broker.settle("w", [(asked[0], Forward(group=rolled(group(asked[0].entry.group))))]),
        "retire": lambda: broker.settle("w", [(asked[0], Retire(reason="late"))]),
        "release": lambda: broker.settle("w", [(asked[0], Release(reason="late"))]),
        "recycle": lambda: broker.settle("w", [(asked[0], Recycle(reason="late"))]),
        "blame": lambda: broker.blame("w", asked, max_attempts=1),
        "hold": lambda: broker.hold(0, "w", 60),
    }


def trainer_verbs(trainer: Trainer, asked: Sequence[Delivery], scored: Sequence[Delivery]) -> Verbs:
    return {
        **verbs(trainer, asked),
        "prepare": lambda: trainer.prepare(scored),
        "commit": lambda: trainer.commit(*step(1, scored), scored),
        "announce": lambda: trainer.announce(version(0)),
        "want_evaluation": lambda: trainer.want_evaluation(0, 3, hold_s=60),
        "forget_versions": lambda: trainer.forget_versions([]),
        "trim_ledger": lambda: trainer.trim_ledger(1),
        "finish": lambda: trainer.finish("late"),
    }


async def all_say_reset(tried: Verbs) -> None:
    let_through: list[str] = []
    for name, verb in tried.items():
        try:
            await insist(verb)
            let_through.append(name)
        except Reset:
            continue
    assert let_through == []


async def lively_run(world: World) -> tuple[Trainer, list[Delivery], list[Delivery]]:
    """A trainer, one group in a worker's hands, two in the trainer's."""
    trainer = await open_run(world)
    scored = await score(world, 2)
    await admit(trainer, 1)
    return trainer, await take(trainer, PROMPTS, "w", 1), scored


async def reopen(trainer: Trainer) -> RunState:
    live = (await insist(trainer.look)).live
    return await trainer.open_run(cap=8, groups=2, staleness=1, eval_cap=4, announcement=live or version(0))


# ---- entering


async def test_nobody_enters_before_a_trainer_opened_the_run(world: World) -> None:
    broker = await world.connect()
    assert not (await broker.look()).exists
    start = time.monotonic()
    with pytest.raises(Unavailable, match="trainer"):
        await broker.enter(timeout_s=0.1)
    assert time.monotonic() - start < 5
    trainer = await world.trainer()
    await trainer.claim(1)
    assert not (await broker.look()).is_open
    await trainer.open_run(cap=8, groups=2, staleness=1, eval_cap=4, announcement=version(0))
    state = await broker.enter(timeout_s=5)
    assert state == await broker.look()
    assert (state.is_open, state.epoch, state.live) == (True, 1, version(0))
    assert (state.cap, state.groups, state.staleness, state.eval_cap) == (8, 2, 1, 4)


async def test_a_process_that_did_not_enter_changes_nothing(world: World) -> None:
    trainer, asked, _ = await lively_run(world)
    stranger = await world.connect()
    before = await trainer.books()
    changing = {name: verb for name, verb in verbs(stranger, asked).items() if name not in ("read", "reread")}
    await all_say_reset(changing)
    assert await trainer.books() == before


async def test_every_process_reports_itself(world: World) -> None:
    broker = await world.connect()
    await broker.beat("rollout-0", {"role": "rollout", "pid": 7, "progress": 1, "busy_s": 0.5})
    await broker.beat("rollout-0", {"role": "rollout", "pid": 7, "progress": 2, "busy_s": 1.5})
    await broker.beat("trainer-0", {"role": "trainer", "pid": 8})
    await broker.beat("silent-0", {})
    beats = await (await world.connect()).beats()
    assert set(beats) == {"rollout-0", "trainer-0", "silent-0"}
    report = beats["rollout-0"]
    assert (report["role"], int(report["pid"]), int(report["progress"]), float(report["busy_s"])) == (
        "rollout",
        7,
        2,
        1.5,
    )
    assert 0 <= report["age_s"] < 5


# ---- a server that restarts


async def test_after_a_restart_every_verb_says_reset_until_a_trainer_opens_the_run(world: World) -> None:
    trainer, asked, scored = await lively_run(world)
    before = await trainer.look()
    await world.restart()
    await all_say_reset(trainer_verbs(trainer, asked, scored))
    state = await insist(trainer.look)
    assert (state.exists, state.same_server, state.is_open) == (True, False, False)
    assert state.tick == before.tick
    with pytest.raises(Unavailable):
        await (await world.connect()).enter(timeout_s=0.05)


async def test_a_restart_loses_nothing(world: World) -> None:
    trainer, asked, scored = await lively_run(world)
    before = await trainer.books()
    await world.restart()
    state = await reopen(trainer)
    assert state.is_open and state.live == version(0)
    after = await trainer.books()
    assert (after.open, after.counts, after.cursor, after.cursor_value) == (
        before.open,
        before.counts,
        before.cursor,
        before.cursor_value,
    )
    worker = await join(world)
    assert await worker.reread(PROMPTS, "w") == asked
    await pass_on(worker, "w", asked)
    assert await trainer.reread(SCORED, "trainer") == scored
    await trainer.commit(*step(1, scored), scored)
    assert (await trainer.books()).count("train.trained") == 2


async def test_who_entered_an_earlier_opening_hears_reset_until_it_enters_again(world: World) -> None:
    trainer = await open_run(world)
    worker = await join(world)
    await admit(worker, 1)
    asked = await take(worker, PROMPTS, "w", 1)
    await world.restart()
    await reopen(trainer)
    with pytest.raises(Reset):
        await insist(lambda: worker.settle("w", [(asked[0], Retire(reason="late"))]))
    with pytest.raises(Reset):
        await worker.admit(1, "two", groups(1, start=1))
    await worker.enter(timeout_s=5)
    assert await worker.settle("w", [(asked[0], Retire(reason="no_signal"))]) == ["done"]


# ---- a server that forgets


async def test_after_a_flush_every_verb_says_reset_until_a_trainer_opens_the_run(world: World) -> None:
    trainer, asked, scored = await lively_run(world)
    await world.flush()
    await all_say_reset(trainer_verbs(trainer, asked, scored))
    assert not (await trainer.look()).is_open
    with pytest.raises(Unavailable):
        await (await world.connect()).enter(timeout_s=0.05)


async def test_every_opening_has_its_own_number_also_after_a_flush(world: World) -> None:
    numbers: list[int] = []
    trainer = await open_run(world, epoch=4)
    worker = await join(world)
    await admit(worker, 1)
    numbers.append((await trainer.look()).incarnation)
    numbers.append((await reopen(trainer)).incarnation)
    await world.restart()
    numbers.append((await reopen(trainer)).incarnation)
    await world.flush()
    await trainer.claim(4)
    numbers.append((await reopen(trainer)).incarnation)
    await world.flush()
    await trainer.claim(5)
    numbers.append((await reopen(trainer)).incarnation)
    await world.flush()
    numbers.append((await (await open_run(world, epoch=6)).look()).incarnation)
    await world.flush()
    zombie = await open_run(world, epoch=2)
    numbers.append((await zombie.look()).incarnation)
    assert len(set(numbers)) == len(numbers), numbers
    with pytest.raises(Reset):
        await worker.admit(0, "from before", groups(1))


async def test_restore_makes_every_open_group_missing_and_readmit_revives_with_a_new_floor(world: World) -> None:
    trainer = await open_run(world, staleness=1)
    scored = await score(world, 3)
    first, _ = step(1, scored[:1])
    await trainer.commit(first, version(1), scored[:1])
    await admit(trainer, 1)
    books = await trainer.prepare(scored[1:2])
    await world.flush()
    await trainer.claim(2)
    state = await trainer.restore(books, [first], version(1), cap=8, groups=2, staleness=4, eval_cap=4)
    assert state.is_open and state.live == version(1)
    assert await trainer.backlog() == {PROMPTS: 0, ROLLOUTS: 0, SCORED: 0}
    assert sorted(await trainer.missing()) == ["story/0/1", "story/0/2", "story/0/3"]
    assert await trainer.ledger() == [first]
    assert await trainer.open_entries(["story/0/1"]) == []
    restored = await trainer.books()
    assert (restored.cursor, restored.cursor_value, restored.counts) == (books.cursor, books.cursor_value, books.counts)
    assert restored.tick > books.tick

    feeder = await join(world)
    assert await feeder.readmit([group("story/0/2"), group("story/0/1"), group("story/0/9")]) == 2
    assert await feeder.readmit([group("story/0/1")]) == 0
    assert await feeder.missing() == ["story/0/3"]
    back = await take(feeder, PROMPTS, "w", 2)
    assert [(each.entry.group, each.entry.floor, each.entry.last_version) for each in back] == [
        ("story/0/2", 1, 5),
        ("story/0/1", 1, 5),
    ]
    await pass_on(feeder, "w", back)
    await pass_on(feeder, "r", await take(feeder, ROLLOUTS, "r", 2))
    again = await take(trainer, SCORED, "t", 2)
    await trainer.commit(*step(2, again, epoch=2), again)
    after = await trainer.books()
    assert (after.count("train.admitted"), after.count("train.trained"), list(after.open)) == (4, 3, ["story/0/3"])
    assert (await feeder.admit(after.cursor, "on", groups(1, start=4))).admitted == 1


async def test_restore_over_older_data_leaves_nothing_of_it(world: World) -> None:
    trainer = await open_run(world)
    scored = await score(world, 1)
    books = await trainer.prepare(scored)
    await admit(trainer, 2)
    [stray] = await take(trainer, PROMPTS, "w", 1)
    await trainer.restore(books, [], version(0), cap=8, groups=2, staleness=1, eval_cap=4)
    assert await trainer.backlog() == {PROMPTS: 0, ROLLOUTS: 0, SCORED: 0}
    assert list((await trainer.books()).open) == ["story/0/0"]
    assert await trainer.settle("w", [(stray, Retire(reason="late"))]) == ["superseded"]
    assert await trainer.settle("trainer", [(scored[0], Retire(reason="late"))]) == ["superseded"]
    assert (await trainer.admit(1, "on", groups(2, start=1))).admitted == 2
    assert [each.entry.group for each in await take(trainer, PROMPTS, "w", 2)] == ["story/0/1", "story/0/2"]


async def test_an_evaluation_asked_anew_after_a_restore_counts_the_groups_that_are_still_open(world: World) -> None:
    trainer = await open_run(world)
    await trainer.want_evaluation(0, 2, hold_s=60)
    held_out = [group(f"eval/0/{index}", "eval") for index in range(2)]
    await trainer.admit_eval(0, 0, held_out[:1])
    await trainer.restore(await trainer.books(), [], version(0), cap=8, groups=2, staleness=1, eval_cap=4)
    assert await trainer.evaluations() == []
    assert await trainer.readmit(held_out) == 1
    await trainer.want_evaluation(0, 2, hold_s=60)
    assert (await trainer.admit_eval(0, 0, held_out)).cursor == 2
    asked = await take(trainer, PROMPTS, "w", 2)
    await trainer.settle("w", [(each, Retire(reason="evaluated", tally={"n": 1, "reward": 1.0})) for each in asked])
    [evaluation] = await trainer.evaluations()
    assert (evaluation.is_done, evaluation.accuracy) == (True, 1.0)
    books = await trainer.books()
    assert (books.count("eval.admitted"), books.count("eval.retired.evaluated"), books.open) == (2, 2, {})


async def test_a_restored_exhausted_source_is_exhausted(world: World) -> None:
    trainer = await open_run(world)
    await admit(trainer, 1)
    await trainer.exhausted(1)
    books = await trainer.books()
    await world.flush()
    await trainer.claim(2)
    await trainer.restore(books, [], version(0), cap=8, groups=2, staleness=1, eval_cap=4)
    assert (await trainer.books()).exhausted


async def test_an_opening_takes_new_limits(world: World) -> None:
    trainer = await open_run(world, cap=4)
    await admit(trainer, 4)
    await trainer.open_run(cap=2, groups=2, staleness=0, eval_cap=4, announcement=version(0))
    admission = await trainer.admit(4, "five", groups(1, start=4))
    assert (admission.admitted, admission.room) == (0, 0)
    await trainer.open_run(cap=6, groups=2, staleness=2, eval_cap=4, announcement=version(0))
    assert (await trainer.admit(4, "five", groups(1, start=4))).room == 1
    assert (await trainer.books()).open["story/0/4"].last_version == 2


async def test_opening_a_finished_run_lets_it_run_again(world: World) -> None:
    trainer = await open_run(world)
    await trainer.finish("steps = 3")
    await reopen(trainer)
    assert (await trainer.look()).finished == ""
