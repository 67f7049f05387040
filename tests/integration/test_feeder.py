"""The feeder in a run: prompts enter as places become free, each once, in order, whatever dies."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from broker import embedded_server
from broker.errors import Backpressure, Misconfigured, Unavailable
from broker.messages import Group
from broker.outcomes import Bury, Retire
from broker.reports import TOO_MANY_DEAD
from broker.settings import RunSection
from broker.streams import PROMPTS
from broker.telemetry import Meter
from producers import feeder
from producers.prompt_groups import PromptGroups
from producers.settings import EvalPrompts, PromptsSection, RolloutSection
from tests import character_model
from tests.character_model import ids
from tests.contract.broker_world import MemoryWorld, Trainer, World, insist, join, open_run, redis_world, version


@pytest.fixture(scope="module")
def redis_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with embedded_server.serving(folder := tmp_path_factory.mktemp("redis")):
        yield folder


@pytest_asyncio.fixture(params=["memory", "redis"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    if request.param == "memory":
        yield MemoryWorld()
        return
    async with redis_world(request.getfixturevalue("redis_folder")) as on_redis:
        yield on_redis


@dataclass(frozen=True)
class Run:
    """A run folder and its settings, fed by `fed`."""

    folder: Path
    prompts: PromptsSection
    rollout: RolloutSection

    def groups(self) -> PromptGroups:
        return PromptGroups.of(self.folder / "model", RunSection(seed=3), self.prompts, self.rollout)


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., Run]:
    character_model.save(tmp_path / "model")

    def make(*, rollout: RolloutSection | None = None, **prompts: Any) -> Run:
        return Run(tmp_path, PromptsSection(**prompts), rollout or RolloutSection(group_size=2, max_tokens=4))

    return make


@asynccontextmanager
async def fed(world: World, run: Run) -> AsyncGenerator[tuple[asyncio.Task[None], asyncio.Event, Meter]]:
    """A feeder at work; it is stopped at the end, and what it died of is raised."""
    stop, meter = asyncio.Event(), Meter()
    task = asyncio.create_task(
        feeder.run(
            await world.connect(),
            folder=run.folder,
            run=RunSection(seed=3),
            prompts=run.prompts,
            rollout=run.rollout,
            meter=meter,
            stop=stop,
            enter_s=20,
        )
    )
    try:
        yield task, stop, meter
    finally:
        stop.set()
        await asyncio.wait_for(task, 10)


async def reached(look: Callable[[], Awaitable[bool]], seconds: float = 10.0) -> None:
    async with asyncio.timeout(seconds):
        while not await insist(look):  # noqa: ASYNC110 - the state is a server's
            await asyncio.sleep(0.005)


async def backlog(trainer: Trainer, prompts: int) -> None:
    async def is_reached() -> bool:
        return (await trainer.backlog())[PROMPTS] == prompts

    await reached(is_reached)


async def take(world: World, count: int, outcome: Retire | Bury | None = None) -> list[Group]:
    """So many groups out of `prompts`, in the order they entered."""
    worker = await join(world)
    reader = await worker.enlist("rollout-0")
    deliveries = await worker.read(PROMPTS, reader, count=count, block_s=5)
    bodies = [body for body in await worker.bodies(deliveries) if body]
    if outcome:
        await worker.settle(reader, [(delivery, outcome) for delivery in deliveries])
    return bodies


async def test_prompts_fill_the_open_set_and_no_more(world: World, make_run: Callable[..., Run]) -> None:
    trainer = await open_run(world, cap=8)
    async with fed(world, make_run()) as (_, _, meter):
        await backlog(trainer, 8)
        books = await trainer.books()
        assert books.cursor == 8
        assert json.loads(books.cursor_value) == {"cursor": 8, "read": {"addition": 8}, "size": {"addition": None}}
        assert meter.facts()["progress"] == 8
    assert (await trainer.backlog())[PROMPTS] == 8


async def test_a_group_says_everything_an_engine_needs(world: World, make_run: Callable[..., Run]) -> None:
    await open_run(world)
    rollout = RolloutSection(group_size=3, max_tokens=5, temperature=0.7, stop=["\n"])
    async with fed(world, make_run(rollout=rollout)):
        group = (await take(world, 1))[0]
    assert group.id == "addition/0/0"
    assert group.kind == "train"
    prompt = group.prompt
    assert prompt.actions.tolist() == [1, *ids(prompt.text)]
    assert (prompt.size, prompt.max_actions, prompt.temperature, prompt.stop) == (3, 5, 0.7, (2, ids("\n")[0]))
    left, right = prompt.text.rstrip("=").split("+")
    assert prompt.answer == f"{int(left) + int(right):03}"[::-1]
    assert prompt.task == "addition"


async def test_a_closed_group_makes_room_for_the_next_prompt(world: World, make_run: Callable[..., Run]) -> None:
    trainer = await open_run(world, cap=4)
    async with fed(world, make_run()):
        await backlog(trainer, 4)
        closed = await take(world, 3, Retire(reason="no_signal"))
        await backlog(trainer, 4)
        assert (await trainer.books()).cursor == 7
        assert [group.id for group in closed] == ["addition/0/0", "addition/0/1", "addition/0/2"]


async def test_with_too_many_buried_it_says_so_and_admits_again_when_they_are_dropped(
    world: World, make_run: Callable[..., Run]
) -> None:
    trainer = await open_run(world, cap=4, dead_limit=2)
    async with fed(world, make_run()) as (_, _, meter):
        await backlog(trainer, 4)
        await take(world, 3, Bury(reason="it breaks"))
        await backlog(trainer, 1)

        async def says_so() -> bool:
            return meter.stage == TOO_MANY_DEAD

        await reached(says_so)
        assert (await trainer.books()).cursor == 4
        operator = await world.operator()
        await operator.enter(timeout_s=5)
        await operator.drop(await operator.dead())
        await backlog(trainer, 4)
        assert (await trainer.books()).cursor == 7
        assert meter.stage != TOO_MANY_DEAD


async def test_held_out_prompts_enter_for_each_version_to_be_measured(
    world: World, make_run: Callable[..., Run]
) -> None:
    trainer = await open_run(world, cap=2, eval_cap=4)
    run = make_run(eval=EvalPrompts(size=6, group_size=1))
    async with fed(world, run):
        await backlog(trainer, 2)
        await take(world, 2)
        await trainer.want_evaluation(0, 6, hold_s=10)
        measured: list[Group] = []
        while len(measured) < 6:
            measured += await take(world, 4, Retire(reason="evaluated", tally={"n": 1, "reward": 1.0}))
    assert sorted(group.id for group in measured) == [f"eval/0/{place}" for place in range(6)]
    assert [one.is_done for one in await trainer.evaluations()] == [True]


async def test_an_evaluation_group_is_greedy_and_its_own(make_run: Callable[..., Run]) -> None:
    groups = make_run(eval=EvalPrompts(size=6, group_size=2)).groups()
    first, last = groups.measuring(40, range(6))[0], groups.measuring(40, range(5, 6))[0]
    assert (first.id, last.id) == ("eval/40/0", "eval/40/5")
    assert (first.kind, first.prompt.size, first.prompt.temperature) == ("eval", 2, 0.0)
    assert first.prompt.text == "99+56="
    assert first.prompt.seed != last.prompt.seed


async def test_an_evaluation_larger_than_there_are_prompts_now_measures_them_again(
    make_run: Callable[..., Run],
) -> None:
    groups = make_run(eval=EvalPrompts(size=2)).groups()
    assert [group.prompt.text for group in groups.measuring(1, range(4))] == ["99+56=", "14+00="] * 2
    with pytest.raises(Misconfigured, match=r"eval\.size = 0"):
        make_run().groups().measuring(1, range(4))


async def test_exact_passes_end_with_the_word_that_nothing_follows(world: World, make_run: Callable[..., Run]) -> None:
    trainer = await open_run(world, cap=100)
    async with fed(world, make_run(source=f"{__name__}:Words", passes=2)) as (task, _, meter):

        async def is_exhausted() -> bool:
            return (await trainer.books()).exhausted

        await reached(is_exhausted)
        assert (await trainer.books()).cursor == 14
        texts = [group.prompt.text for group in await take(world, 14)]
        assert sorted(texts) == sorted(list("abcdefg") * 2)
        assert not task.done(), "it stays for evaluations and for groups to bring back"
        assert meter.stage == "the sources are exhausted"


async def test_two_feeders_admit_every_prompt_once(world: World, make_run: Callable[..., Run]) -> None:
    trainer = await open_run(world, cap=8)
    taken: list[Group] = []
    async with fed(world, make_run()), fed(world, make_run()):
        while len(taken) < 60:
            taken += await take(world, 8, Retire(reason="no_signal"))
    assert [group.id for group in taken] == [f"addition/0/{index}" for index in range(len(taken))]
    assert (await trainer.books()).cursor >= 60


async def test_a_feeder_that_starts_again_goes_on_where_the_last_one_stopped(
    world: World, make_run: Callable[..., Run]
) -> None:
    trainer = await open_run(world, cap=4)
    async with fed(world, make_run()):
        await backlog(trainer, 4)
    before = await take(world, 4, Retire(reason="no_signal"))
    async with fed(world, make_run()):
        await backlog(trainer, 4)
        after = await take(world, 4)
    assert [group.id for group in before + after] == [f"addition/0/{index}" for index in range(8)]


async def test_a_restart_with_other_prompts_is_refused(world: World, make_run: Callable[..., Run]) -> None:
    trainer = await open_run(world, cap=4)
    async with fed(world, make_run()):
        await backlog(trainer, 4)
    with pytest.raises(Misconfigured, match=r"the run has read .*addition.*spelling.*resume with the \[prompts\]"):
        async with fed(world, make_run(source="spelling")) as (task, _, _):
            await asyncio.wait_for(asyncio.shield(task), 10)


async def test_a_restored_run_gets_its_open_groups_again_by_id(world: World, make_run: Callable[..., Run]) -> None:
    trainer = await open_run(world, cap=4, eval_cap=2)
    run = make_run(eval=EvalPrompts(size=2))
    await trainer.want_evaluation(0, 2, hold_s=10)
    async with fed(world, run):
        await backlog(trainer, 6)
        before = {group.id: group for group in await take(world, 6)}
        books = await trainer.books()
        await world.flush()
        await trainer.claim(2)
        await trainer.restore(books, [], version(0), cap=4, groups=2, staleness=1, eval_cap=2)
        await backlog(trainer, 6)
        after = {group.id: group for group in await take(world, 6)}
    assert before.keys() == after.keys()
    for name, group in after.items():
        assert group.prompt.text == before[name].prompt.text
        assert group.prompt.seed == before[name].prompt.seed
    assert (await trainer.books()).cursor == 4


async def test_a_server_that_comes_back_is_entered_again(world: World, make_run: Callable[..., Run]) -> None:
    trainer = await open_run(world, cap=4)
    async with fed(world, make_run()):
        await backlog(trainer, 4)
        await world.restart()
        again = await world.trainer()
        await insist(lambda: again.claim(2))
        await insist(
            lambda: again.open_run(cap=6, groups=2, staleness=2, eval_cap=2, announcement=version(0, 2)),
        )
        await backlog(again, 6)


async def test_the_end_of_the_run_ends_the_feeder(world: World, make_run: Callable[..., Run]) -> None:
    trainer = await open_run(world, cap=2)
    async with fed(world, make_run()) as (task, _, _):
        await backlog(trainer, 2)
        await trainer.finish("goal reached")
        await asyncio.wait_for(asyncio.shield(task), 5)


async def test_stop_is_heard_while_no_trainer_has_opened_the_run(make_run: Callable[..., Run]) -> None:
    async with fed(MemoryWorld(), make_run()) as (task, stop, meter):

        async def is_waiting() -> bool:
            return meter.stage == "waiting for the run to open"

        await reached(is_waiting)
        stop.set()
        await asyncio.wait_for(asyncio.shield(task), 5)


async def test_a_run_that_never_opens_is_told(make_run: Callable[..., Run]) -> None:
    with pytest.raises(Unavailable, match=r"no trainer has opened the run within 0\.05 s"):
        await feeder.feed(
            await MemoryWorld().connect(), make_run().groups(), meter=Meter(), stop=asyncio.Event(), enter_s=0.05
        )


async def test_a_full_server_is_waited_for(make_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> None:
    world = MemoryWorld()
    trainer, handle = await open_run(world, cap=4), await world.connect()
    admit, refusals = handle.admit, iter([True, True])

    async def full_twice(*arguments: Any) -> Any:
        if next(refusals, False):
            raise Backpressure("the server is at its memory limit")
        return await admit(*arguments)

    monkeypatch.setattr(handle, "admit", full_twice)
    monkeypatch.setattr(feeder, "FULL_S", 0.01)
    stop, meter = asyncio.Event(), Meter()
    feeding = asyncio.create_task(feeder.feed(handle, make_run().groups(), meter=meter, stop=stop))
    await backlog(trainer, 4)
    stop.set()
    await asyncio.wait_for(feeding, 5)


# ---- prompts that cannot be sampled


class Words:
    """Seven prompts of one letter; `text` instead of the one at `bad`, or of the held-out ones if `bad` is below 0."""

    name = "words"
    size = 7

    def __init__(self, *, seed: int, bad: int = 7, text: str = "") -> None:
        self.bad, self.text = bad, text

    def prompt(self, pass_number: int, index: int) -> Any:
        from producers.prompt_sources.base import SourcePrompt

        return SourcePrompt(text=self.text if index == self.bad else "abcdefg"[index])

    def held_out(self, size: int) -> Any:
        from producers.prompt_sources.base import SourcePrompt

        return [SourcePrompt(text=self.text if self.bad < 0 else "h")] * size


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "a" * 60,
            r"words/0/4 \('a+…'\): 61 tokens and \[rollout\] max_tokens = 4 are 65, and the model's context is 64",
        ),
        ("Hello", r"prompt words/0/4 \('Hello'\): the model's tokenizer does not know 'H'"),
    ],
)
async def test_a_first_prompt_that_cannot_be_sampled_is_told_before_anything_is_admitted(
    make_run: Callable[..., Run], text: str, problem: str
) -> None:
    world = MemoryWorld()
    trainer = await open_run(world)
    run = make_run(source=f"{__name__}:Words", options={"bad": 4, "text": text})
    with pytest.raises(Misconfigured, match=problem):
        async with fed(world, run) as (task, _, _):
            await asyncio.wait_for(asyncio.shield(task), 10)
    assert (await trainer.books()).cursor == 0


def test_a_held_out_prompt_that_cannot_be_sampled_is_told(make_run: Callable[..., Run]) -> None:
    options = {"bad": -1, "text": "a" * 60}
    run = make_run(source=f"{__name__}:Words", options=options, eval=EvalPrompts(size=1))
    with pytest.raises(Misconfigured, match=r"prompt words/held_out/0 .* are 65"):
        run.groups()


def test_a_later_prompt_that_is_too_long_is_admitted_and_left_to_the_engine_to_bury(
    make_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("producers.prompt_groups.LOOKED_AT", 3)
    groups = make_run(source=f"{__name__}:Words", options={"bad": 4, "text": "a" * 60}).groups()
    assert [len(group.prompt.actions) for group in groups.training(0, 7)] == [2, 2, 2, 2, 61, 2, 2]


def test_data_that_went_bad_stops_the_feeder_with_the_place(tmp_path: Path, make_run: Callable[..., Run]) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"prompt": "1+1="}\n')
    groups = make_run(source="jsonl", options={"path": str(path)}).groups()
    path.write_text("{")
    with pytest.raises(Misconfigured, match=r"x\.jsonl:1: no JSON .*the run stops before prompt 0"):
        groups.training(0, 1)


def test_the_same_id_is_the_same_group_in_every_process(make_run: Callable[..., Run]) -> None:
    one, other = make_run().groups(), make_run().groups()
    group = one.training(5, 1)[0]
    again = other.by_id(group.id)
    assert (again.prompt.text, again.prompt.seed) == (group.prompt.text, group.prompt.seed)
    assert again.prompt.actions.tolist() == group.prompt.actions.tolist()
    assert len({group.prompt.seed for group in one.training(0, 500)}) == 500
