"""What the trainer does to a run: prepare and commit whole, fenced by its epoch, and versions that come and go."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest

from broker.contract import Books
from broker.errors import Broken, Fenced
from broker.outcomes import Bury, Forward, Outcome, Recycle, Release, Retire
from broker.streams import PROMPTS, ROLLOUTS, SCORED
from tests.contract.broker_world import (
    World,
    admit,
    group,
    join,
    judged,
    open_run,
    pass_on,
    rolled,
    score,
    step,
    succeed,
    take,
    version,
)

pytestmark = pytest.mark.asyncio


# ---- prepare and commit


async def test_prepare_returns_the_books_of_a_step_that_could_be_committed(world: World) -> None:
    trainer = await open_run(world)
    scored = await score(world, 2)
    prepared = await trainer.prepare(scored)
    assert prepared == await trainer.books()
    assert set(prepared.open) == {"story/0/0", "story/0/1"}
    assert (prepared.cursor, prepared.cursor_value, prepared.count("train.admitted")) == (2, "after 2", 2)


async def test_whatever_changes_the_books_raises_the_tick(world: World) -> None:
    trainer = await open_run(world)
    seen = [await trainer.books()]

    async def changed() -> bool:
        before, now = seen[-1], await trainer.books()
        seen.append(now)
        assert (now.tick > before.tick) == (replace(now, tick=0) != replace(before, tick=0))
        return now.tick > before.tick

    await admit(trainer, 2)
    assert await changed()
    one, two = await take(trainer, PROMPTS, "w", 2)
    await pass_on(trainer, "w", [one])
    assert await changed()
    await trainer.settle("w", [(two, Release(reason="drain"))])
    assert await changed()
    await trainer.settle("w", [(two, Retire(reason="late"))])
    assert not await changed()
    await pass_on(trainer, "r", await take(trainer, ROLLOUTS, "r", 1))
    assert await changed()
    scored = await take(trainer, SCORED, "t", 1)
    await trainer.prepare(scored)
    assert not await changed()
    await trainer.commit(*step(1, scored), scored)
    assert await changed()
    await trainer.commit(*step(1, scored), scored)
    assert not await changed()


async def test_prepare_names_the_groups_that_are_not_open_any_more(world: World) -> None:
    trainer = await open_run(world)
    scored = await score(world, 2)
    await trainer.settle("trainer", [(scored[1], Retire(reason="stale"))])
    with pytest.raises(Broken, match="story/0/1"):
        await trainer.prepare(scored)


async def test_prepare_refuses_a_group_that_is_not_scored_yet(world: World) -> None:
    trainer = await open_run(world)
    await admit(trainer, 1)
    with pytest.raises(Broken):
        await trainer.prepare(await take(trainer, PROMPTS, "w", 1))


async def test_an_evaluation_group_is_never_trained(world: World) -> None:
    trainer = await open_run(world)
    broker = await join(world)
    await trainer.want_evaluation(0, 1, hold_s=60)
    await broker.admit_eval(0, 0, [group("eval/0/0", "eval")])
    await pass_on(broker, "w", await take(broker, PROMPTS, "w", 1))
    await pass_on(broker, "r", await take(broker, ROLLOUTS, "r", 1))
    scored = await take(trainer, SCORED, "t", 1)
    with pytest.raises(Broken):
        await trainer.commit(*step(1, scored), scored)


async def test_commit_closes_its_groups_and_makes_the_version_live(world: World) -> None:
    trainer = await open_run(world)
    scored = await score(world, 3)
    line, announcement = step(1, scored[:2])
    await trainer.commit(line, announcement, scored[:2])
    books = await trainer.books()
    assert (set(books.open), books.count("train.trained")) == ({"story/0/2"}, 2)
    assert (await trainer.look()).live == announcement
    assert await trainer.ledger() == [line]
    assert await trainer.backlog() == {PROMPTS: 0, ROLLOUTS: 0, SCORED: 1}
    assert [body and body.id for body in await trainer.bodies(scored)] == [None, None, "story/0/2"]
    assert await trainer.reread(SCORED, "trainer") == scored[2:]


@pytest.mark.parametrize("late", [Retire(reason="stale"), Release(reason="drain"), Recycle(reason="late")])
async def test_commit_refuses_whole_when_one_group_is_not_open(world: World, late: Outcome) -> None:
    trainer = await open_run(world)
    scored = await score(world, 3)
    await trainer.settle("trainer", [(scored[2], late)])
    before, backlog = await trainer.books(), await trainer.backlog()
    with pytest.raises(Broken, match="story/0/2"):
        await trainer.commit(*step(1, scored), scored)
    assert await trainer.books() == before
    assert await trainer.backlog() == backlog
    assert await trainer.ledger() == []
    assert (await trainer.look()).live == version(0)


async def test_the_same_commit_twice_is_one_ledger_line(world: World) -> None:
    trainer = await open_run(world)
    scored = await score(world, 2)
    line, announcement = step(1, scored)
    await trainer.commit(line, announcement, scored)
    after = await trainer.books()
    await trainer.commit(line, announcement, scored)
    assert await trainer.ledger() == [line]
    assert await trainer.books() == after


async def test_commit_refuses_a_step_from_another_head(world: World) -> None:
    trainer = await open_run(world)
    scored = await score(world, 4)
    await trainer.commit(*step(1, scored[:1]), scored[:1])
    before = await trainer.books()
    for line, announcement in [
        step(1, scored[1:2]),
        step(3, scored[1:2]),
        step(2, scored[1:2], parent_epoch=9),
    ]:
        with pytest.raises(Broken):
            await trainer.commit(line, announcement, scored[1:2])
    assert await trainer.books() == before
    await trainer.commit(*step(2, scored[1:2]), scored[1:2])
    assert [line.version for line in await trainer.ledger()] == [1, 2]


async def test_commit_works_with_10_000_ids(world: World) -> None:
    trainer = await open_run(world, cap=10_000)
    broker = await join(world)
    offered = [group(f"story/0/{index}", size=1) for index in range(10_000)]
    assert (await broker.admit(0, "all", offered)).admitted == 10_000
    asked = await take(broker, PROMPTS, "w", 10_000)
    answered = {each.id: rolled(each) for each in offered}
    await broker.settle("w", [(each, Forward(group=answered[each.entry.group])) for each in asked])
    given = await take(broker, ROLLOUTS, "r", 10_000)
    await broker.settle("r", [(each, Forward(group=judged(answered[each.entry.group]))) for each in given])
    scored = await take(trainer, SCORED, "t", 10_000)
    assert len((await trainer.prepare(scored)).open) == 10_000
    await trainer.commit(*step(1, scored), scored)
    books = await trainer.books()
    assert (len(books.open), books.count("train.trained")) == (0, 10_000)
    assert len((await trainer.ledger())[0].groups) == 10_000
    assert (await trainer.backlog())[SCORED] == 0


async def test_a_batch_nobody_has_read_can_be_committed_by_its_names(world: World) -> None:
    trainer = await open_run(world)
    broker = await join(world)
    await admit(broker, 2)
    await pass_on(broker, "w", await take(broker, PROMPTS, "w", 2))
    await pass_on(broker, "r", await take(broker, ROLLOUTS, "r", 1))
    found = await trainer.open_entries(["story/0/1", "story/0/9", "story/0/0"])
    assert [(each.entry.group, each.stream) for each in found] == [("story/0/1", ROLLOUTS), ("story/0/0", SCORED)]
    assert found[1].entry.reward == 0.5
    await trainer.commit(*step(1, found[1:]), found[1:])
    assert (await trainer.books()).count("train.trained") == 1
    assert await trainer.read(SCORED, "t", count=1, block_s=0) == []


async def test_commit_asks_for_an_evaluation_of_its_version_and_holds_it(world: World) -> None:
    trainer = await open_run(world)
    scored = await score(world, 2)
    await trainer.commit(*step(1, scored[:1]), scored[:1], evaluate=5, hold_s=3600)
    [evaluation] = await trainer.evaluations()
    assert (evaluation.version, evaluation.wanted, evaluation.admitted) == (1, 5, 0)
    await trainer.commit(*step(2, scored[1:]), scored[1:])
    assert [each.version for each in await trainer.forget_versions([])] == [0]
    assert await trainer.hold(1, "engine", 60) == version(1)


async def test_the_ledger_is_read_after_a_version_and_trimmed_below_one(world: World) -> None:
    trainer = await open_run(world)
    scored = await score(world, 4)
    for to, each in enumerate(scored, 1):
        await trainer.commit(*step(to, [each]), [each])
    assert [line.version for line in await trainer.ledger(after=2)] == [3, 4]
    await trainer.trim_ledger(3)
    assert [line.version for line in await trainer.ledger()] == [3, 4]


# ---- epochs


async def test_an_epoch_is_claimed_once_and_never_below_another(world: World) -> None:
    one, two = await world.trainer(), await world.trainer()
    assert (await one.claim(2)).epoch == 2
    for epoch in (1, 2):
        with pytest.raises(Fenced):
            await two.claim(epoch)
    assert (await two.claim(3)).epoch == 3


async def test_a_newer_epoch_fences_every_verb_of_the_older_trainer(world: World) -> None:
    old = await open_run(world)
    scored = await score(world, 2)
    new = await succeed(world, 2)
    before, state = await old.books(), await old.look()
    verbs = {
        "open_run": lambda: old.open_run(cap=1, groups=1, staleness=0, eval_cap=0, announcement=version(9)),
        "restore": lambda: old.restore(
            Books(tick=0, cursor=0, cursor_value="", open={}, counts={}),
            [],
            version(0),
            cap=1,
            groups=1,
            staleness=0,
            eval_cap=0,
        ),
        "prepare": lambda: old.prepare(scored),
        "commit": lambda: old.commit(*step(1, scored), scored),
        "retire": lambda: old.settle("trainer", [(scored[0], Retire(reason="stale"))]),
        "release": lambda: old.settle("trainer", [(scored[0], Release(reason="drain"))]),
        "recycle": lambda: old.settle("trainer", [(scored[0], Recycle(reason="late"))]),
        "bury": lambda: old.settle("trainer", [(scored[0], Bury(reason="late"))]),
        "announce": lambda: old.announce(version(0, 1)),
        "want_evaluation": lambda: old.want_evaluation(0, 3, hold_s=1),
        "forget_versions": lambda: old.forget_versions([]),
        "trim_ledger": lambda: old.trim_ledger(5),
        "finish": lambda: old.finish("I think so"),
    }
    for name, verb in verbs.items():
        with pytest.raises(Fenced):
            await verb()
            pytest.fail(f"{name} was not fenced")
    assert await old.books() == before
    assert await old.look() == state
    assert await old.evaluations() == []
    await new.commit(*step(1, scored, epoch=2), scored)
    assert (await new.books()).count("train.trained") == 2


async def test_a_new_trainer_leaves_the_others_at_work(world: World) -> None:
    await open_run(world)
    broker = await join(world)
    await admit(broker, 1)
    await succeed(world, 2)
    await pass_on(broker, "w", await take(broker, PROMPTS, "w", 1))
    await admit(broker, 1)


async def test_a_new_trainer_adopts_what_the_older_one_held(world: World) -> None:
    await open_run(world)
    scored = await score(world, 2)
    new = await succeed(world, 2)
    adopted = await new.adopt(SCORED, "trainer-2", idle_s=0, count=10)
    assert adopted == scored
    await new.commit(*step(1, adopted, epoch=2), adopted)
    assert [line.epoch for line in await new.ledger()] == [2]


# ---- versions


async def test_a_version_in_use_is_not_forgotten(world: World) -> None:
    trainer = await open_run(world)
    follower = await join(world)
    scored = await score(world, 4)
    assert await follower.hold(0, "rollout-0", 3600) == version(0)
    for to, each in enumerate(scored, 1):
        await trainer.commit(*step(to, [each]), [each])
    would_go = await trainer.forget_versions([3], dry_run=True)
    gone = await trainer.forget_versions([3])
    assert would_go == gone
    assert [(each.version, each.path) for each in gone] == [(1, version(1).path), (2, version(2).path)]
    assert await follower.hold(1, "rollout-0", 60) is None
    assert await follower.hold(3, "rollout-0", 60) == version(3)
    assert await trainer.forget_versions([3]) == []


async def test_a_dropped_hold_lets_its_version_go(world: World) -> None:
    trainer = await open_run(world)
    follower = await join(world)
    [scored] = await score(world, 1)
    await follower.hold(0, "a", 3600)
    await follower.hold(0, "b", 3600)
    await trainer.commit(*step(1, [scored]), [scored])
    await follower.drop_hold(0, "a")
    assert await trainer.forget_versions([]) == []
    await follower.drop_hold(0, "b")
    assert [each.version for each in await trainer.forget_versions([])] == [0]


async def test_an_expired_hold_lets_its_version_go_and_a_renewed_one_keeps_it(world: World) -> None:
    trainer = await open_run(world)
    scored = await score(world, 2)
    await trainer.hold(0, "renewed", 0.01)
    await trainer.hold(0, "renewed", 600)
    await trainer.commit(*step(1, scored[:1]), scored[:1])
    await trainer.hold(1, "dead follower", 600)
    await trainer.commit(*step(2, scored[1:]), scored[1:])
    assert await trainer.forget_versions([], now=time.time() + 300) == []
    await trainer.hold(1, "dead follower", 1)
    assert await trainer.forget_versions([], now=time.time() + 300) == [version(1)]


async def test_a_version_that_never_was_cannot_be_held(world: World) -> None:
    await open_run(world)
    assert await (await join(world)).hold(7, "follower", 60) is None


async def test_who_waits_for_a_newer_version_wakes_when_it_is_live(world: World) -> None:
    trainer = await open_run(world)
    follower = await join(world)
    [scored] = await score(world, 1)
    assert await follower.wait_version(-1, block_s=5) == version(0)
    assert await follower.wait_version(0, block_s=0.02) is None
    waiting = asyncio.create_task(follower.wait_version(0, block_s=10))
    start = time.monotonic()
    await trainer.commit(*step(1, [scored]), [scored])
    assert await waiting == version(1)
    assert time.monotonic() - start < 5


async def test_the_live_version_is_announced_again_under_a_new_epoch(world: World) -> None:
    await open_run(world)
    follower = await join(world)
    new = await succeed(world, 2)
    await new.announce(version(0, 2))
    assert (await follower.look()).live == version(0, 2)
    assert await follower.hold(0, "rollout-0", 60) == version(0, 2)
    assert await follower.wait_version(-1, block_s=1) == version(0, 2)


async def test_a_version_announced_again_is_the_parent_of_the_next_one(world: World) -> None:
    trainer = await open_run(world)
    scored = await score(world, 2)
    await trainer.commit(*step(1, scored[:1]), scored[:1])
    new = await succeed(world, 2)
    await new.announce(version(1, 2))
    with pytest.raises(Broken):
        await new.commit(*step(2, scored[1:], epoch=2, parent_epoch=1), scored[1:])
    await new.commit(*step(2, scored[1:], epoch=2, parent_epoch=2), scored[1:])
    assert [(line.version, line.epoch) for line in await new.ledger()] == [(1, 1), (2, 2)]


async def test_everybody_sees_that_a_run_is_finished(world: World) -> None:
    trainer = await open_run(world)
    other = await join(world)
    assert (await other.look()).finished == ""
    await trainer.finish("steps = 3")
    assert (await other.look()).finished == "steps = 3"
