"""How groups enter a run: by the feeder's cursor, below the cap, each with its floor."""

from __future__ import annotations

import pytest

from broker.errors import Broken
from broker.outcomes import Retire
from broker.streams import PROMPTS
from tests.contract.broker_world import World, admit, group, groups, join, open_run, score, step, take

pytestmark = pytest.mark.asyncio


async def test_an_admitted_group_arrives_whole(world: World) -> None:
    await open_run(world)
    feeder, worker = await join(world), await join(world)
    await feeder.admit(0, "one", [group("story/0/0")])
    [delivery] = await take(worker, PROMPTS, "w", 1)
    [body] = await worker.bodies([delivery])
    assert body is not None
    assert (body.id, body.kind, body.prompt.text, body.prompt.answer) == (
        "story/0/0",
        "train",
        "prompt of story/0/0",
        "42",
    )
    assert body.prompt.actions.tolist() == [0, 1, 2]
    assert (body.rollouts, body.scores) == (None, None)
    entry = delivery.entry
    assert (entry.group, entry.kind, entry.task, entry.size) == ("story/0/0", "train", "story", 2)
    assert (entry.attempt, entry.alone, entry.newest_version, entry.reward, entry.tokens) == (0, False, -1, None, 0)
    assert entry.bytes > 0


async def test_admit_is_idempotent_by_its_cursor(world: World) -> None:
    await open_run(world)
    feeder = await join(world)
    first = await feeder.admit(0, "three", groups(3))
    again = await feeder.admit(0, "three", groups(3))
    assert (first.cursor, first.admitted, first.room) == (3, 3, 5)
    assert (again.cursor, again.admitted, again.room) == (3, 0, 5)
    books = await feeder.books()
    assert (books.cursor, books.cursor_value, books.count("train.admitted")) == (3, "three", 3)
    assert (await feeder.backlog())[PROMPTS] == 3


async def test_a_group_that_left_is_not_admitted_again_by_a_late_retry(world: World) -> None:
    await open_run(world)
    feeder = await join(world)
    await feeder.admit(0, "one", groups(1))
    await feeder.settle("w", [(each, Retire(reason="no_signal")) for each in await take(feeder, PROMPTS, "w", 1)])
    assert (await feeder.admit(0, "one", groups(1))).admitted == 0
    assert (await feeder.books()).open == {}


async def test_two_prompts_with_one_id_are_refused_before_either_enters(world: World) -> None:
    await open_run(world)
    feeder = await join(world)
    await feeder.admit(0, "one", groups(1))
    before = await feeder.books()
    with pytest.raises(Broken):
        await feeder.admit(1, "three", [group("story/0/1"), group("story/0/0")])
    assert await feeder.books() == before


async def test_of_two_feeders_one_admits_and_the_other_hears_the_cursor(world: World) -> None:
    await open_run(world)
    one, other = await join(world), await join(world)
    await one.admit(0, "a", groups(2))
    admission = await other.admit(0, "b", groups(1, start=7))
    assert (admission.cursor, admission.admitted) == (2, 0)
    assert (await one.books()).cursor_value == "a"


async def test_a_full_open_set_admits_only_a_prefix(world: World) -> None:
    await open_run(world, cap=3)
    feeder = await join(world)
    await feeder.admit(0, "two", groups(2))
    admission = await feeder.admit(2, "five", groups(3, start=2))
    assert (admission.cursor, admission.admitted, admission.room) == (3, 1, 0)
    books = await feeder.books()
    assert set(books.open) == {"story/0/0", "story/0/1", "story/0/2"}
    assert (books.cursor, books.cursor_value) == (3, "two"), "offsets of groups that did not enter"
    assert (await feeder.admit(3, "five", groups(2, start=3))).admitted == 0


async def test_a_closed_group_leaves_its_place(world: World) -> None:
    await open_run(world, cap=1)
    feeder = await join(world)
    await admit(feeder, 1)
    [delivery] = await take(feeder, PROMPTS, "w", 1)
    await feeder.settle("w", [(delivery, Retire(reason="no_signal"))])
    assert (await feeder.admit(1, "two", groups(1, start=1))).admitted == 1


async def test_the_floor_is_the_live_version_and_the_last_version_lies_the_bound_above(world: World) -> None:
    trainer = await open_run(world, staleness=3)
    scored = await score(world, 1)
    await trainer.commit(*step(1, scored), scored)
    feeder = await join(world)
    assert (await feeder.admit(1, "two", groups(1, start=1))).live == 1
    opened = (await feeder.books()).open["story/0/1"]
    assert (opened.stream, opened.kind, opened.floor, opened.last_version) == (PROMPTS, "train", 1, 4)
    [delivery] = await take(feeder, PROMPTS, "w", 1)
    assert (delivery.entry.floor, delivery.entry.last_version) == (1, 4)
    assert delivery.entry_id == opened.entry_id


async def test_evaluation_groups_have_their_own_cap(world: World) -> None:
    trainer = await open_run(world, cap=2, eval_cap=3)
    feeder = await join(world)
    await trainer.want_evaluation(0, 5, hold_s=60)
    await admit(feeder, 2)
    held_out = [group(f"eval/0/{index}", "eval") for index in range(5)]
    admission = await feeder.admit_eval(0, 0, held_out)
    assert (admission.cursor, admission.admitted, admission.room) == (3, 3, 0)
    books = await feeder.books()
    assert (books.count("train.admitted"), books.count("eval.admitted"), books.cursor) == (2, 3, 2)


async def test_evaluation_groups_enter_once_by_the_cursor_of_their_version(world: World) -> None:
    trainer = await open_run(world)
    feeder = await join(world)
    await trainer.want_evaluation(0, 2, hold_s=60)
    await feeder.admit_eval(0, 0, [group("eval/0/0", "eval")])
    again = await feeder.admit_eval(0, 0, [group("eval/0/0", "eval")])
    assert (again.cursor, again.admitted) == (1, 0)
    [evaluation] = await feeder.evaluations()
    assert (evaluation.version, evaluation.wanted, evaluation.admitted, evaluation.is_done) == (0, 2, 1, False)


async def test_an_evaluation_group_is_bound_to_exactly_the_version_it_measures(world: World) -> None:
    trainer = await open_run(world)
    scored = await score(world, 1)
    await trainer.commit(*step(1, scored), scored)
    await trainer.want_evaluation(0, 1, hold_s=60)
    feeder = await join(world)
    await feeder.admit_eval(0, 0, [group("eval/0/0", "eval")])
    [delivery] = await take(feeder, PROMPTS, "w", 1)
    assert (delivery.entry.kind, delivery.entry.floor, delivery.entry.last_version) == ("eval", 0, 0)


async def test_an_exhausted_source_is_in_the_books_until_something_enters(world: World) -> None:
    await open_run(world)
    feeder = await join(world)
    await admit(feeder, 2)
    await feeder.exhausted(1)
    assert not (await feeder.books()).exhausted, "that was another feeder's cursor"
    await feeder.exhausted(2)
    assert (await feeder.books()).exhausted
    await admit(feeder, 1)
    assert not (await feeder.books()).exhausted
