"""How groups move through the stages: read, handed over, given back, taken over, closed; each once."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from broker.codec import encode_prompt, encode_rollouts, encode_scores, size_of
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
    redis_world,
    rolled,
    score,
    step,
    take,
)

pytestmark = pytest.mark.asyncio


# ---- reading


async def test_entries_are_read_in_the_order_they_came(world: World) -> None:
    await open_run(world)
    broker = await join(world)
    await admit(broker, 3)
    first = await broker.read(PROMPTS, "a", count=2, block_s=1)
    second = await broker.read(PROMPTS, "b", count=2, block_s=1)
    assert [each.entry.group for each in first] == ["story/0/0", "story/0/1"]
    assert [each.entry.group for each in second] == ["story/0/2"]


async def test_a_read_of_an_empty_stream_ends_at_its_deadline(world: World) -> None:
    await open_run(world)
    broker = await join(world)
    start = time.monotonic()
    assert await broker.read(PROMPTS, "a", count=1, block_s=0.05) == []
    assert 0.04 < time.monotonic() - start < 2


async def test_a_waiting_read_wakes_when_a_group_enters(world: World) -> None:
    await open_run(world)
    reader, feeder = await join(world), await join(world)
    reading = asyncio.create_task(reader.read(PROMPTS, "a", count=1, block_s=10))
    start = time.monotonic()
    await admit(feeder, 1)
    assert len(await reading) == 1
    assert time.monotonic() - start < 5


async def test_what_is_pending_is_read_again_after_a_lost_reply(world: World) -> None:
    await open_run(world)
    broker = await join(world)
    await admit(broker, 3)
    lost = await take(broker, PROMPTS, "a", 2)
    await take(broker, PROMPTS, "b", 1)
    assert await broker.reread(PROMPTS, "a") == lost
    assert await broker.reread(PROMPTS, "nobody") == []


async def test_backlog_is_undelivered_and_pending(world: World) -> None:
    await open_run(world)
    broker = await join(world)
    await admit(broker, 3)
    assert await broker.backlog() == {PROMPTS: 3, ROLLOUTS: 0, SCORED: 0}
    await pass_on(broker, "a", (await take(broker, PROMPTS, "a", 2))[:1])
    assert await broker.backlog() == {PROMPTS: 2, ROLLOUTS: 1, SCORED: 0}


async def test_the_backlog_of_a_drained_stream_of_10_000_entries_is_0(world: World) -> None:
    await open_run(world, cap=10_000)
    broker = await join(world)
    await admit(broker, 10_000)
    assert (await broker.backlog())[PROMPTS] == 10_000
    while deliveries := await broker.read(PROMPTS, "a", count=1000, block_s=0):
        verdicts = await broker.settle("a", [(each, Retire(reason="no_signal")) for each in deliveries])
        assert verdicts == ["done"] * len(deliveries)
    assert await broker.backlog() == {PROMPTS: 0, ROLLOUTS: 0, SCORED: 0}
    books = await broker.books()
    assert (len(books.open), books.count("train.retired.no_signal")) == (0, 10_000)


# ---- handing over


async def test_a_forwarded_group_carries_what_each_stage_added(world: World) -> None:
    await open_run(world)
    broker = await join(world)
    await admit(broker, 1)
    [asked] = await take(broker, PROMPTS, "w", 1)
    answer = rolled(group("story/0/0"), at=0)
    assert await broker.settle("w", [(asked, Forward(group=answer))]) == ["done"]
    [answered] = await take(broker, ROLLOUTS, "r", 1)
    [body] = await broker.bodies([answered])
    assert body is not None and body.rollouts is not None and answer.rollouts is not None
    assert body.rollouts.texts == answer.rollouts.texts
    assert body.rollouts.logprobs.tolist() == answer.rollouts.logprobs.tolist()
    assert body.rollouts.spans.tolist() == answer.rollouts.spans.tolist()
    await broker.settle("r", [(answered, Forward(group=judged(body)))])
    [scored] = await take(broker, SCORED, "t", 1)
    [whole] = await broker.bodies([scored])
    assert whole is not None and whole.scores is not None and whole.rollouts is not None
    assert whole.scores.rewards.tolist() == [0.0, 1.0]
    assert whole.scores.parts["exact_match"].tolist() == [0.0, 1.0]
    assert whole.prompt.text == "prompt of story/0/0"


async def test_the_entry_says_what_is_needed_to_plan(world: World) -> None:
    await open_run(world)
    [scored] = await score(world, 1)
    entry = scored.entry
    assert (entry.oldest_version, entry.newest_version, entry.tokens, entry.reward) == (0, 0, 6, 0.5)
    assert (entry.task, entry.size, entry.floor, entry.last_version) == ("story", 2, 0, 1)
    whole = judged(rolled(group("story/0/0")))
    assert whole.rollouts is not None and whole.scores is not None
    parts = encode_prompt(whole) | encode_rollouts(whole.rollouts) | encode_scores(whole.scores)
    assert entry.bytes == size_of(parts), "prompt, rollouts and scores together"


async def test_a_group_whose_entry_was_settled_is_superseded_for_the_second_reader(world: World) -> None:
    await open_run(world)
    slow, quick = await join(world), await join(world)
    await admit(slow, 1)
    held = await take(slow, PROMPTS, "slow", 1)
    adopted = await quick.adopt(PROMPTS, "quick", idle_s=0, count=10)
    assert adopted == held
    await pass_on(quick, "quick", adopted)
    before = await slow.books()
    late: list[Outcome] = [
        Forward(group=rolled(group("story/0/0"))),
        Retire(reason="stale"),
        Bury(reason="late"),
        Release(reason="late"),
        Recycle(reason="late"),
    ]
    assert await slow.settle("slow", [(held[0], outcome) for outcome in late]) == ["superseded"] * 5
    assert await slow.books() == before
    assert await slow.backlog() == {PROMPTS: 0, ROLLOUTS: 1, SCORED: 0}


async def test_the_first_result_counts_whoever_holds_the_entry(world: World) -> None:
    await open_run(world)
    slow, quick = await join(world), await join(world)
    await admit(slow, 1)
    held = await take(slow, PROMPTS, "slow", 1)
    adopted = await quick.adopt(PROMPTS, "quick", idle_s=0, count=10)
    await pass_on(slow, "slow", held)
    assert await quick.settle("quick", [(adopted[0], Retire(reason="no_signal"))]) == ["superseded"]
    assert (await quick.backlog())[ROLLOUTS] == 1


@pytest.mark.parametrize("outcome", [Bury(reason="mine"), Release(reason="mine"), Recycle(reason="mine")])
async def test_only_the_present_owner_may_bury_release_or_recycle(world: World, outcome: Outcome) -> None:
    await open_run(world)
    slow, quick = await join(world), await join(world)
    await admit(slow, 1)
    [held] = await take(slow, PROMPTS, "slow", 1)
    await quick.adopt(PROMPTS, "quick", idle_s=0, count=10)
    before = await slow.books()
    assert await slow.settle("slow", [(held, outcome)]) == ["not_owner"]
    assert await slow.books() == before
    assert await quick.settle("quick", [(held, outcome)]) == ["done"]


async def test_each_settlement_is_its_own_transaction(world: World) -> None:
    await open_run(world)
    broker = await join(world)
    await admit(broker, 3)
    one, two, three = await take(broker, PROMPTS, "w", 3)
    verdicts = await broker.settle(
        "w",
        [
            (one, Retire(reason="no_signal")),
            (one, Retire(reason="no_signal")),
            (two, Bury(reason="too long")),
            (three, Forward(group=rolled(group("story/0/2")))),
        ],
    )
    assert verdicts == ["done", "superseded", "done", "done"]
    books = await broker.books()
    assert (books.count("train.retired.no_signal"), books.count("train.buried"), len(books.open)) == (1, 1, 1)


# ---- the ends


async def test_a_retired_group_leaves_nothing_behind(world: World) -> None:
    await open_run(world)
    broker = await join(world)
    await admit(broker, 1)
    deliveries = await take(broker, PROMPTS, "w", 1)
    await broker.settle("w", [(deliveries[0], Retire(reason="stale"))])
    assert await broker.bodies(deliveries) == [None]
    assert await broker.reread(PROMPTS, "w") == []
    books = await broker.books()
    assert (books.open, books.count("train.retired.stale")) == ({}, 1)


async def test_a_buried_group_is_closed_and_keeps_its_body(world: World) -> None:
    await open_run(world)
    broker = await join(world)
    await admit(broker, 1)
    deliveries = await take(broker, PROMPTS, "w", 1)
    await broker.settle("w", [(deliveries[0], Bury(reason="longer than the context"))])
    [body] = await broker.bodies(deliveries)
    assert body is not None and body.prompt.text == "prompt of story/0/0"
    books = await broker.books()
    assert (books.open, books.count("train.buried")) == ({}, 1)
    assert (await broker.backlog())[PROMPTS] == 0


async def test_release_moves_the_open_set_to_the_new_entry(world: World) -> None:
    await open_run(world)
    broker = await join(world)
    await admit(broker, 1)
    [held] = await take(broker, PROMPTS, "w", 1)
    await broker.settle("w", [(held, Release(reason="draining"))])
    [again] = await take(broker, PROMPTS, "other", 1)
    assert (again.entry, again.stream) == (held.entry, PROMPTS)
    assert again.entry_id != held.entry_id
    assert (await broker.books()).open["story/0/0"].entry_id == again.entry_id
    assert await broker.settle("w", [(held, Retire(reason="late"))]) == ["superseded"]
    assert (await broker.backlog())[PROMPTS] == 1


async def test_a_failed_try_counts_and_a_drain_does_not(world: World) -> None:
    await open_run(world)
    broker = await join(world)
    await admit(broker, 1)
    for failed, attempts in [(False, 0), (True, 1), (False, 1), (True, 2)]:
        [held] = await take(broker, PROMPTS, "w", 1)
        await broker.settle("w", [(held, Release(reason="once more", failed=failed))])
        [held] = await take(broker, PROMPTS, "w", 1)
        assert held.entry.attempt == attempts
        await broker.settle("w", [(held, Release(reason="back"))])


async def test_a_trainers_failure_blames_no_group(world: World) -> None:
    trainer = await open_run(world)
    [scored] = await score(world, 1)
    assert await trainer.settle("trainer", [(scored, Release(reason="out of memory", failed=True))]) == ["done"]
    [again] = await take(trainer, SCORED, "trainer", 1)
    assert again.entry.attempt == 0
    await trainer.blame("trainer", [again], max_attempts=1)
    [again] = await take(trainer, SCORED, "trainer", 1)
    assert (again.entry.attempt, again.entry.alone) == (0, False)


async def test_a_recycled_group_is_generated_again_with_a_new_floor(world: World) -> None:
    trainer = await open_run(world, staleness=1)
    scored = await score(world, 2)
    await trainer.commit(*step(1, scored[:1]), scored[:1])
    assert await trainer.settle("trainer", [(scored[1], Recycle(reason="late"))]) == ["done"]
    [again] = await take(trainer, PROMPTS, "w", 1)
    assert (again.entry.floor, again.entry.last_version, again.entry.newest_version) == (1, 2, -1)
    assert (again.entry.tokens, again.entry.reward) == (0, None)
    [body] = await trainer.bodies([again])
    assert body is not None and (body.rollouts, body.scores) == (None, None)
    assert body.prompt.text == "prompt of story/0/1"
    opened = (await trainer.books()).open["story/0/1"]
    assert (opened.stream, opened.floor, opened.last_version) == (PROMPTS, 1, 2)
    await pass_on(trainer, "w", [again])
    [answered] = await take(trainer, ROLLOUTS, "r", 1)
    [body] = await trainer.bodies([answered])
    assert body is not None and body.rollouts is not None and body.scores is None


async def test_a_training_group_adds_to_no_evaluation(world: World) -> None:
    trainer = await open_run(world)
    await admit(trainer, 1)
    [held] = await take(trainer, PROMPTS, "w", 1)
    await trainer.settle("w", [(held, Retire(reason="stale", tally={"n": 1, "reward": 1.0}))])
    assert await trainer.evaluations() == []


async def test_an_evaluation_adds_up_over_its_groups(world: World) -> None:
    trainer = await open_run(world)
    broker = await join(world)
    await trainer.want_evaluation(0, 2, hold_s=60)
    await broker.admit_eval(0, 0, [group("eval/0/0", "eval"), group("eval/0/1", "eval")])
    await pass_on(broker, "w", await take(broker, PROMPTS, "w", 2))
    one, two = await take(broker, ROLLOUTS, "r", 2)
    await broker.settle("r", [(one, Retire(reason="evaluated", tally={"n": 1, "reward": 1.0, "reward.story": 0.25}))])
    [evaluation] = await broker.evaluations()
    assert not evaluation.is_done and evaluation.accuracy is None
    done = Retire(reason="evaluated", tally={"n": 1, "reward": 0.5, "reward.story": 0.5})
    assert await broker.settle("r", [(two, done), (two, done)]) == ["done", "superseded"]
    [evaluation] = await broker.evaluations()
    assert (evaluation.is_done, evaluation.accuracy, evaluation.tally["reward.story"]) == (True, 0.75, 0.75)
    books = await broker.books()
    assert (books.count("eval.retired.evaluated"), books.count("eval.admitted"), books.open) == (2, 2, {})


# ---- readers that die


async def test_only_entries_of_others_that_were_idle_long_enough_are_adopted(world: World) -> None:
    await open_run(world)
    broker = await join(world)
    await admit(broker, 3)
    await take(broker, PROMPTS, "a", 2)
    await take(broker, PROMPTS, "b", 1)
    assert await broker.adopt(PROMPTS, "b", idle_s=60, count=10) == []
    adopted = await broker.adopt(PROMPTS, "b", idle_s=0, count=1)
    assert [each.entry.group for each in adopted] == ["story/0/0"]
    assert [each.entry.group for each in await broker.reread(PROMPTS, "b")] == ["story/0/0", "story/0/2"]
    assert [each.entry.group for each in await broker.adopt(PROMPTS, "b", idle_s=0, count=10)] == ["story/0/1"]
    assert await broker.adopt(PROMPTS, "b", idle_s=0, count=10) == [], "its own are in its hands already"
    assert await broker.reread(PROMPTS, "a") == []


async def test_every_start_of_a_slot_reads_under_its_own_name(world: World) -> None:
    await open_run(world)
    one, other = await join(world), await join(world)
    names = [await one.enlist("rollout-0"), await other.enlist("rollout-0"), await one.enlist("rollout-1")]
    assert len(set(names)) == 3


async def test_a_slot_inherits_at_once_what_its_earlier_starts_held(world: World) -> None:
    await open_run(world)
    broker = await join(world)
    await admit(broker, 4)
    first, second = await broker.enlist("rollout-1"), await broker.enlist("rollout-1")
    neighbour = await broker.enlist("rollout-10")
    held = [*await take(broker, PROMPTS, first, 1), *await take(broker, PROMPTS, second, 1)]
    await take(broker, PROMPTS, neighbour, 1)
    reader = await broker.enlist("rollout-1")
    own = await take(broker, PROMPTS, reader, 1)
    inherited = await broker.inherit(PROMPTS, reader, "rollout-1")
    assert sorted(each.entry.group for each in inherited) == [each.entry.group for each in held]
    assert await broker.inherit(PROMPTS, reader, "rollout-1") == []
    assert await broker.reread(PROMPTS, reader) == [*held, *own]
    assert await broker.settle(first, [(held[0], Release(reason="late"))]) == ["not_owner"]
    await broker.blame(reader, inherited, max_attempts=3)
    again = await take(broker, PROMPTS, reader, 2)
    assert [(each.entry.alone, each.entry.attempt) for each in again] == [(True, 0), (True, 0)]


async def test_whoever_starts_hears_of_its_own_slots_readers_alone(redis_folder: Path) -> None:
    async with redis_world(redis_folder) as world:
        await open_run(world)
        broker = await join(world)
        operator = world.handles[-1]
        pipe = operator.client.pipeline(transaction=False)
        for number in range(500):
            pipe.xgroup_createconsumer(operator.keys.stream(PROMPTS), "rollout", f"slot-{number}.1")
        await pipe.execute()
        before = (await operator.client.info("stats"))["total_net_output_bytes"]
        assert await broker.inherit(PROMPTS, "slot-7.2", "slot-7") == []
        sent = (await operator.client.info("stats"))["total_net_output_bytes"] - before
        assert sent < 20_000, "it was sent the whole fleet's readers"
        readers = await operator.client.xinfo_consumers(operator.keys.stream(PROMPTS), "rollout")
        assert len(readers) == 499


async def test_a_renewed_entry_stays_and_one_that_is_not_renewed_goes(world: World) -> None:
    await open_run(world)
    broker = await join(world)
    await admit(broker, 2)
    kept, left = await take(broker, PROMPTS, "a", 2)
    deadline = time.monotonic() + 10
    adopted: list[str] = []
    while not adopted:
        assert time.monotonic() < deadline
        await broker.renew("a", [kept])
        adopted += [each.entry.group for each in await broker.adopt(PROMPTS, "b", idle_s=0.3, count=10)]
        await asyncio.sleep(0.01)
    assert adopted == [left.entry.group]


async def test_renewing_does_not_take_an_adopted_entry_back(world: World) -> None:
    await open_run(world)
    slow, quick = await join(world), await join(world)
    await admit(slow, 1)
    held = await take(slow, PROMPTS, "slow", 1)
    await quick.adopt(PROMPTS, "quick", idle_s=0, count=1)
    await slow.renew("slow", held)
    assert await slow.reread(PROMPTS, "slow") == []
    assert await quick.reread(PROMPTS, "quick") == held


async def test_a_death_with_one_group_in_hand_raises_its_attempts_until_it_is_buried(world: World) -> None:
    await open_run(world)
    broker = await join(world)
    await admit(broker, 1)
    for attempts in (1, 2):
        await broker.blame("w", await take(broker, PROMPTS, "w", 1), max_attempts=3)
        [again] = await take(broker, PROMPTS, "w", 1)
        assert again.entry.attempt == attempts
        await broker.settle("w", [(again, Release(reason="drain"))])
    await broker.blame("w", await take(broker, PROMPTS, "w", 1), max_attempts=3)
    books = await broker.books()
    assert (books.count("train.buried"), books.open) == (1, {})
    assert (await broker.backlog())[PROMPTS] == 0


async def test_a_death_with_several_in_hand_blames_none_but_marks_all_to_run_alone(world: World) -> None:
    await open_run(world)
    broker = await join(world)
    await admit(broker, 2)
    await broker.blame("w", await take(broker, PROMPTS, "w", 2), max_attempts=1)
    again = await take(broker, PROMPTS, "w", 2)
    assert [(each.entry.attempt, each.entry.alone) for each in again] == [(0, True), (0, True)]
    await broker.settle("w", [(again[0], Release(reason="drain"))])
    [released] = await take(broker, PROMPTS, "w", 1)
    assert released.entry.alone, "giving it back proves nothing"
    await pass_on(broker, "w", [released])
    [passed] = await take(broker, ROLLOUTS, "r", 1)
    assert not passed.entry.alone, "it got past the stage"


async def test_blame_leaves_what_others_hold_or_settled(world: World) -> None:
    await open_run(world)
    dead, quick = await join(world), await join(world)
    await admit(dead, 2)
    one, two = await take(dead, PROMPTS, "dead", 2)
    await quick.adopt(PROMPTS, "quick", idle_s=0, count=2)
    await quick.settle("quick", [(two, Retire(reason="no_signal"))])
    before = await dead.books()
    await dead.blame("dead", [one, two], max_attempts=1)
    assert await dead.books() == before
    assert await quick.reread(PROMPTS, "quick") == [one]


async def test_bodies_come_in_order_with_gaps_where_a_group_is_closed(world: World) -> None:
    await open_run(world)
    broker = await join(world)
    await admit(broker, 3)
    deliveries = await take(broker, PROMPTS, "w", 3)
    await broker.settle("w", [(deliveries[1], Retire(reason="no_signal"))])
    bodies = await broker.bodies(deliveries)
    assert [body and body.id for body in bodies] == ["story/0/0", None, "story/0/2"]
    assert await broker.bodies([]) == []


async def test_a_buried_evaluation_group_is_no_longer_waited_for(world: World) -> None:
    trainer = await open_run(world)
    broker = await join(world)
    await trainer.want_evaluation(0, 2, hold_s=60)
    await broker.admit_eval(0, 0, [group(f"eval/0/{index}", "eval") for index in range(2)])
    measured, broken = await take(broker, PROMPTS, "w", 2)
    await broker.settle("w", [(measured, Retire(reason="evaluated", tally={"n": 1, "reward": 0.5}))])
    assert [each.is_done for each in await broker.evaluations()] == [False]
    await broker.settle("w", [(broken, Bury(reason="no end"))])
    assert [each.is_done for each in await broker.evaluations()] == [True]
