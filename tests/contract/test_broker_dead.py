"""Buried groups are a person's to decide about: tried again from the start, or given up; the books always balance."""

from __future__ import annotations

import re

import pytest

from broker.entries import steps
from broker.outcomes import Bury, Forward, Release
from broker.streams import PROMPTS, ROLLOUTS, SCORED
from tests.contract.broker_world import (
    Operator,
    Trainer,
    World,
    admit,
    group,
    groups,
    join,
    judged,
    open_run,
    pass_on,
    rolled,
    step,
    take,
    version,
)

pytestmark = pytest.mark.asyncio


async def operator_in(world: World) -> Operator:
    operator = await world.operator()
    await operator.enter(timeout_s=5)
    return operator


async def bury_scoring(world: World, number: int) -> Operator:
    """So many groups, buried by a reward consumer after a second try."""
    broker = await join(world)
    await admit(broker, number)
    await pass_on(broker, "rollout", await take(broker, PROMPTS, "rollout", number))
    tried = await take(broker, ROLLOUTS, "reward", number)
    await broker.settle("reward", [(each, Release(reason="no answer; yet", failed=True)) for each in tried])
    again = await take(broker, ROLLOUTS, "reward", number)
    assert await broker.settle("reward", [(each, Bury(reason="it broke")) for each in again]) == ["done"] * number
    return await operator_in(world)


async def balanced(trainer: Trainer) -> dict[str, int]:
    books = await trainer.books()
    counts = {name.partition(".")[2]: n for name, n in books.counts.items() if n and name.startswith("train.")}
    counts.pop("open", None)
    assert counts["admitted"] == sum(counts.values()) - counts["admitted"] + len(books.open)
    return counts


async def test_a_buried_group_says_why_and_how_it_came_there(world: World) -> None:
    await open_run(world)
    [line] = await (await bury_scoring(world, 1)).dead()
    assert (line.entry.group, line.reason, line.stage, line.entry.attempt) == ("story/0/0", "it broke", ROLLOUTS, 1)
    assert [(one.stream, one.reader, one.what) for one in steps(line.entry.trace)] == [
        (PROMPTS, "rollout", "forwarded"),
        (ROLLOUTS, "reward", "tried again: no answer, yet"),
        (ROLLOUTS, "reward", "buried: it broke"),
    ]


async def test_a_revived_group_starts_anew_at_the_live_version_and_trains_once(world: World) -> None:
    trainer = await open_run(world, groups=1)
    operator = await bury_scoring(world, 1)
    [line] = await operator.dead()
    await admit(operator, 1)
    await pass_on(operator, "rollout", await take(operator, PROMPTS, "rollout", 1))
    await pass_on(operator, "reward", await take(operator, ROLLOUTS, "reward", 1))
    scored = await take(trainer, SCORED, "trainer", 1)
    await trainer.commit(*step(1, scored), scored)

    assert await operator.revive([line, line]) == ["done", "gone"]
    assert await operator.dead() == []
    assert await balanced(trainer) == {"admitted": 2, "trained": 1}
    [again] = await take(operator, PROMPTS, "rollout", 1)
    assert (again.entry.group, again.entry.floor, again.entry.last_version) == ("story/0/0", 1, 2)
    assert (again.entry.attempt, again.entry.reward, again.entry.newest_version) == (0, None, -1)
    [body] = await operator.bodies([again])
    assert body is not None and body.rollouts is None and body.prompt.text == "prompt of story/0/0"

    await operator.settle("rollout", [(again, Forward(group=rolled(group("story/0/0"), at=1)))])
    await pass_on(operator, "reward", await take(operator, ROLLOUTS, "reward", 1))
    scored = await take(trainer, SCORED, "trainer", 1)
    await trainer.commit(*step(2, scored), scored)
    assert [line.groups for line in await trainer.ledger()] == [("story/0/1",), ("story/0/0",)]
    assert await balanced(trainer) == {"admitted": 2, "trained": 2}
    assert await operator.revive([line]) == ["gone"]


async def test_a_dropped_group_is_retired_and_its_body_goes(world: World) -> None:
    trainer = await open_run(world)
    operator = await bury_scoring(world, 2)
    lines = await operator.dead()
    assert await operator.drop(lines[:1]) == ["done"]
    assert await operator.drop(lines[:1]) == await operator.revive(lines[:1]) == ["gone"]
    assert await balanced(trainer) == {"admitted": 2, "buried": 1, "retired.dropped": 1}
    assert [line.entry.group for line in await operator.dead()] == ["story/0/1"]


async def test_a_group_is_revived_only_below_the_cap_so_that_the_oldest_stay_a_legal_batch(world: World) -> None:
    trainer = await open_run(world, cap=2)
    operator = await bury_scoring(world, 1)
    lines = await operator.dead()
    await admit(operator, 2)
    before = await trainer.books()
    assert await operator.revive(lines) == ["full"]
    assert await trainer.books() == before
    [held, _] = await take(operator, PROMPTS, "rollout", 2)
    await operator.settle("rollout", [(held, Bury(reason="odd"))])
    assert await operator.revive(lines) == ["done"]
    assert (await operator.admit(3, "", groups(1, 3))).admitted == 0


async def test_a_measured_version_is_not_measured_again(world: World) -> None:
    trainer = await open_run(world)
    await trainer.want_evaluation(0, 1, hold_s=60)
    operator = await operator_in(world)
    await operator.admit_eval(0, 0, [group("eval/0/0", "eval")])
    held = await take(operator, PROMPTS, "rollout", 1)
    await operator.settle("rollout", [(held[0], Bury(reason="odd"))])
    lines = await operator.dead()
    assert await operator.revive(lines) == ["measured"]
    assert await operator.drop(lines) == ["done"]
    assert (await trainer.books()).counts["eval.retired.dropped"] == 1


async def test_nobody_revives_a_group_in_a_run_that_is_over(world: World) -> None:
    trainer = await open_run(world)
    operator = await bury_scoring(world, 1)
    await trainer.finish("done")
    assert await operator.revive(await operator.dead()) == ["finished"]


async def test_a_server_that_lost_data_revives_nothing_that_may_have_trained_meanwhile(world: World) -> None:
    trainer = await open_run(world)
    operator = await bury_scoring(world, 1)
    books, lines = await trainer.books(), await operator.dead()
    limits = {"cap": 8, "groups": 2, "staleness": 1, "eval_cap": 4}
    await trainer.restore(books, [], version(0), **limits)
    await operator.enter(timeout_s=5)
    assert await operator.revive(lines) == ["forgotten"]
    await admit(operator, 1)
    taken = await take(operator, PROMPTS, "rollout", 1)
    await operator.settle("rollout", [(taken[0], Bury(reason="odd"))])
    [_, buried] = await operator.dead()
    assert await operator.revive([buried]) == ["done"]
    assert await operator.drop(lines) == ["done"]
    assert (await trainer.books()).count("train.buried") == 1, "the books may never have heard of this burial"


async def test_a_group_that_is_open_again_is_not_touched(world: World) -> None:
    trainer = await open_run(world)
    broker = await join(world)
    await admit(broker, 1)
    books = await trainer.books()
    held = await take(broker, PROMPTS, "rollout", 1)
    await broker.settle("rollout", [(held[0], Bury(reason="odd"))])
    await trainer.restore(books, [], version(0), cap=8, groups=2, staleness=1, eval_cap=4)
    operator = await operator_in(world)
    lines = await operator.dead()
    assert await operator.revive(lines) == await operator.drop(lines) == ["open"]
    assert await operator.readmit([group("story/0/0")]) == 1
    [again] = await operator.bodies(await take(operator, PROMPTS, "rollout", 1))
    assert again is not None


async def test_a_trace_keeps_the_first_and_the_newest_steps(world: World) -> None:
    await open_run(world)
    broker = await join(world)
    await admit(broker, 1)
    for number in range(20):
        [held] = await take(broker, PROMPTS, f"r{number}", 1)
        await broker.settle(f"r{number}", [(held, Release(reason="drained " + "very long " * 30))])
    [held] = await take(broker, PROMPTS, "last", 1)
    assert len(held.entry.trace) < 1000
    assert re.search("; …; ", held.entry.trace)
    assert [one.reader for one in steps(held.entry.trace)] == ["r0", *(f"r{number}" for number in range(14, 20))]
    await broker.settle("last", [(held, Forward(group=rolled(group("story/0/0"))))])
    [answered] = await broker.bodies(await take(broker, ROLLOUTS, "reward", 1))
    assert answered is not None and judged(answered).scores is not None


async def test_with_as_many_dead_as_may_be_nothing_new_enters_until_some_are_dropped(world: World) -> None:
    trainer = await open_run(world, dead_limit=2)
    operator, feeder = await bury_scoring(world, 2), await join(world)
    await trainer.want_evaluation(0, 1, hold_s=60)
    assert (await feeder.look()).dead_limit == 2
    before = await feeder.books()
    refused = await feeder.admit(2, "three", groups(1, start=2))
    assert (refused.cursor, refused.admitted, refused.room, refused.stopped) == (2, 0, 0, True)
    assert await feeder.books() == before
    measured = await feeder.admit_eval(0, 0, [group("eval/0/0", "eval")])
    assert (measured.admitted, measured.stopped) == (1, False)
    assert await operator.drop((await operator.dead())[:1]) == ["done"]
    admission = await feeder.admit(2, "three", groups(1, start=2))
    assert (admission.admitted, admission.room, admission.stopped) == (1, 7, False)


async def test_what_is_open_goes_on_and_what_is_buried_can_be_replayed_when_nothing_new_enters(world: World) -> None:
    trainer = await open_run(world, dead_limit=1)
    broker = await join(world)
    await admit(broker, 3)
    first, *others = await take(broker, PROMPTS, "rollout", 3)
    await broker.settle("rollout", [(first, Bury(reason="it broke"))])
    assert (await broker.admit(3, "four", groups(1, start=3))).stopped
    await pass_on(broker, "rollout", others)
    await pass_on(broker, "reward", await take(broker, ROLLOUTS, "reward", 2))
    scored = await take(broker, SCORED, "trainer", 2)
    await trainer.commit(*step(1, scored), scored)
    operator = await operator_in(world)
    assert await operator.revive(await operator.dead()) == ["done"]
    assert (await broker.admit(3, "four", groups(1, start=3))).admitted == 1
    assert await balanced(trainer) == {"admitted": 4, "trained": 2}


async def test_another_limit_of_dead_counts_from_the_next_opening(world: World) -> None:
    trainer = await open_run(world, dead_limit=1)
    await bury_scoring(world, 1)
    limits = {"cap": 8, "groups": 2, "staleness": 1, "eval_cap": 4}
    for dead_limit, stopped in ((2, False), (1, True), (0, False)):
        await trainer.open_run(**limits, dead_limit=dead_limit, announcement=version(0))
        feeder = await join(world)
        cursor = (await feeder.books()).cursor
        admission = await feeder.admit(cursor, "more", groups(1, start=cursor))
        assert (admission.stopped, admission.admitted) == (stopped, 0 if stopped else 1)
