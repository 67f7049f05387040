"""Random histories: any process may try any verb at any time, with whatever it ever held in its hands.

A `Cast` is everybody at work on one run. A `History` draws one act after the other and has each cast play it; what they
hear and what the books say can then be compared, or held against the laws.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import astuple, dataclass, field, replace
from typing import Any

from broker.contract import Announcement, Books, LedgerLine
from broker.errors import Broken, Fenced, Reset
from broker.messages import Delivery
from broker.outcomes import Bury, Forward, Outcome, Recycle, Release, Retire
from broker.streams import PROMPTS, ROLLOUTS, SCORED, WORK_STREAMS
from tests.contract.broker_world import (
    Broker,
    Operator,
    Trainer,
    World,
    group,
    groups,
    insist,
    judged,
    rolled,
    step,
    version,
)

Act = Callable[["Cast"], Awaitable[object]]
LIMITS: dict[str, int] = {"cap": 6, "groups": 2, "staleness": 1, "eval_cap": 3, "dead_limit": 4}


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What a store would have kept of a run."""

    books: Books
    ledger: list[LedgerLine]
    live: Announcement


@dataclass(slots=True, kw_only=True)
class Cast:
    """Everybody at work on one run, and every delivery anybody ever got."""

    world: World
    workers: list[Broker] = field(default_factory=list[Broker])
    operators: list[Operator] = field(default_factory=list[Operator])
    trainers: list[Trainer] = field(default_factory=list[Trainer])
    """The last one is the newest; the others are zombies."""
    known: list[Delivery] = field(default_factory=list[Delivery])
    saved: Snapshot | None = None
    last_commit: tuple[LedgerLine, Announcement, list[Delivery]] | None = None

    @property
    def trainer(self) -> Trainer:
        return self.trainers[-1]

    async def play(self, act: Act) -> object:
        """What the actor hears: an answer, or how it was refused."""
        try:
            return await insist(lambda: act(self))
        except (Fenced, Reset):
            return "refused"
        except Broken:
            return "broken"

    def got(self, deliveries: Sequence[Delivery]) -> object:
        self.known += deliveries
        return [(each.stream, each.entry) for each in deliveries]

    async def facts(self) -> dict[str, Any]:
        """What is the same wherever the same history was played, and nothing that may differ (entry ids, ticks)."""
        books, state = await self.trainer.books(), await self.trainer.look()
        return {
            "open": {name: (each.stream, *astuple(each)[2:]) for name, each in books.open.items()},
            "counts": {name: n for name, n in books.counts.items() if n and not name.endswith(".open")},
            "cursor": (books.cursor, books.cursor_value, books.exhausted),
            "backlog": await self.trainer.backlog(),
            "missing": sorted(await self.trainer.missing()),
            "ledger": await self.trainer.ledger(),
            "dead": [(line.entry.group, line.stage, line.entry.attempt) for line in await self.operators[0].dead()],
            "evaluations": [replace(each, tally=dict(each.tally)) for each in await self.trainer.evaluations()],
            "run": (state.epoch, state.live, state.finished, state.is_open),
        }


class History:
    """Draws acts from a seed; what an act is about depends only on the seed and on what the first cast knows."""

    def __init__(self, seed: int, casts: Sequence[Cast]) -> None:
        self.random = random.Random(seed)
        self.casts = casts
        self.epoch = 0
        self.seed = seed

    @property
    def lead(self) -> Cast:
        return self.casts[0]

    async def begin(self) -> None:
        for cast in self.casts:
            cast.workers = [await cast.world.connect() for _ in range(2)]
            cast.operators = [await cast.world.operator()]
        await self.all_play(self.new_trainer(opens=True))
        for index in range(2):
            await self.all_play(lambda cast, index=index: enter(cast.workers[index]))

    async def all_play(self, act: Act) -> list[object]:
        return [await cast.play(act) for cast in self.casts]

    async def draw(self) -> tuple[str, Act]:
        """The next act, with its name."""
        kinds = {
            self.admission: 4,
            self.evaluation: 1,
            self.reading: 12,
            self.settling: 12,
            self.training: 5,
            self.burials: 2,
            self.versions: 1,
            self.entering: 3,
            self.upheaval: 1,
        }
        kind = self.random.choices(list(kinds), list(kinds.values()))[0]
        return await kind()

    async def admission(self) -> tuple[str, Act]:
        cursor = (await self.lead.trainer.books()).cursor + self.random.choice([0, 0, 0, 0, 1, -1])
        worker, number = self.random.randrange(2), self.random.randint(1, 4)
        if self.random.random() < 0.1:
            return f"exhausted {cursor}", lambda cast: cast.workers[worker].exhausted(cursor)
        missing = sorted(await self.lead.trainer.missing())
        if missing and self.random.random() < 0.7:
            back = [group(name, "eval" if name.startswith("eval") else "train") for name in missing[:number]]
            return f"readmit {missing[:number]}", lambda cast: cast.workers[worker].readmit(back)
        offered = groups(number, start=max(cursor, 0))
        return f"admit {number} at {cursor}", lambda cast: cast.workers[worker].admit(cursor, f"c{cursor}", offered)

    async def evaluation(self) -> tuple[str, Act]:
        wanted, live = await self.lead.trainer.evaluations(), (await self.lead.trainer.look()).live
        if not wanted or not live or self.random.random() < 0.3:
            number = live.version if live else 0
            return f"evaluate {number}", lambda cast: cast.trainer.want_evaluation(number, 4, hold_s=3600)
        chosen, number = self.random.choice(wanted), self.random.randint(1, 3)
        start = max(0, chosen.admitted + self.random.choice([0, 0, 0, 1, -1]))
        offered = [group(f"eval/{chosen.version}/{start + i}", "eval") for i in range(number)]
        offered = [each for each in offered if int(each.id.rpartition("/")[2]) < chosen.wanted]
        return f"admit_eval {chosen.version} at {start}", lambda cast: cast.workers[0].admit_eval(
            chosen.version, start, offered
        )

    async def reading(self) -> tuple[str, Act]:
        stream, verb = self.random.choice(WORK_STREAMS), self.random.choices(["read", "reread", "adopt"], [8, 1, 2])[0]
        index, count = self.random.randrange(2), self.random.randint(1, 3)

        async def act(cast: Cast) -> object:
            broker, reader = actor(cast, stream, index)
            await enter(broker)  # a read that hears Reset may have taken entries, as one whose reply was lost
            if verb == "read":
                return cast.got(await broker.read(stream, reader, count=count, block_s=0))
            if verb == "reread":
                return cast.got(await broker.reread(stream, reader))
            return cast.got(await broker.adopt(stream, reader, idle_s=0, count=count))

        return f"{verb} {count} of {stream} by {index}", act

    async def settling(self) -> tuple[str, Act]:
        if not self.lead.known:
            return await self.admission()
        numbers = [await self.pick() for _ in range(self.random.randint(1, 2))]
        stream = self.lead.known[numbers[0]].stream
        if stream == SCORED and self.random.random() < 0.8:
            return await self.training()
        numbers = [number for number in numbers if self.lead.known[number].stream == stream]
        index, outcomes = self.random.randrange(2), [self.outcome(self.lead.known[number]) for number in numbers]
        verb = self.random.choices(["settle", "blame", "renew"], [12, 1, 1])[0]

        async def act(cast: Cast) -> object:
            broker, reader = actor(cast, stream, index)
            held = [cast.known[number] for number in numbers]
            if verb == "settle":
                return await broker.settle(reader, list(zip(held, outcomes, strict=True)))
            return await (broker.blame(reader, held, max_attempts=2) if verb == "blame" else broker.renew(reader, held))

        names = [self.lead.known[number].entry.group for number in numbers]
        said = [f"{name}: {type(each).__name__}" for name, each in zip(names, outcomes, strict=True)]
        return f"{verb} in {stream} by {index}: {said}", act

    async def pick(self) -> int:
        """A delivery, mostly one that could be settled now."""
        alive = await self.alive()
        return self.random.choice(alive if alive and self.random.random() < 0.8 else range(len(self.lead.known)))

    async def alive(self) -> list[int]:
        """Which of the known deliveries are live entries."""
        named = {(each.stream, each.entry_id) for each in (await self.lead.trainer.books()).open.values()}
        return [number for number, each in enumerate(self.lead.known) if (each.stream, each.entry_id) in named]

    def outcome(self, delivery: Delivery) -> Outcome:
        name, kind = delivery.entry.group, delivery.entry.kind
        others: list[Outcome] = [
            Retire(reason=self.random.choice(["stale", "no_signal"]), tally={"n": 1, "reward": 0.5}),
            Bury(reason="drawn"),
            Release(reason="drawn", failed=self.random.random() < 0.5),
            Recycle(reason="drawn"),
        ]
        if delivery.stream == SCORED or self.random.random() < 0.2:
            return self.random.choice(others)
        answered = rolled(group(name, kind), at=delivery.entry.floor)
        return Forward(group=answered if delivery.stream == PROMPTS else judged(answered))

    async def training(self) -> tuple[str, Act]:
        alive = await self.alive() if self.random.random() < 0.8 else range(len(self.lead.known))
        held = {each.entry.group: n for n in alive if (each := self.lead.known[n]).stream == SCORED}
        numbers = self.random.sample(sorted(held.values()), min(len(held), self.random.randint(1, 2)))
        live, who = (await self.lead.trainer.look()).live, self.random.choices([-1, 0], [8, 1])[0]
        if self.lead.last_commit and self.random.random() < 0.2:
            return "the last commit again", lambda cast: again(cast, who)
        if not numbers or live is None:
            return await self.reading()
        head = self.random.choices([0, 1, -1], [10, 1, 1])[0]
        to, epoch, evaluate = live.version + 1 + head, self.epoch, self.random.choice([0, 0, 3])

        async def act(cast: Cast) -> object:
            batch = [cast.known[number] for number in numbers]
            trainer = cast.trainers[who]
            books = await trainer.prepare(batch)
            line, announced = step(to, batch, epoch, live.epoch)
            await trainer.commit(line, announced, batch, evaluate=evaluate, hold_s=3600)
            cast.last_commit = line, announced, batch
            return books.cursor, sorted(books.open)

        return f"train {[self.lead.known[number].entry.group for number in numbers]} to {to}", act

    async def burials(self) -> tuple[str, Act]:
        """A person decides about dead letters, or about one that has gone meanwhile."""
        lines, verb = await self.lead.operators[0].dead(), self.random.choices(["revive", "drop"], [4, 1])[0]
        if not lines:
            return await self.settling()
        chosen = self.random.sample(range(len(lines)), self.random.randint(1, min(2, len(lines))))
        times = self.random.choice([1, 1, 2])

        async def act(cast: Cast) -> object:
            operator = cast.operators[0]
            await enter(operator)
            known = await operator.dead()
            asked = [known[number] for number in chosen] * times
            return await (operator.revive(asked) if verb == "revive" else operator.drop(asked))

        return f"{verb} {[lines[number].entry.group for number in chosen]}", act

    async def versions(self) -> tuple[str, Act]:
        number, holder = self.random.randint(0, 5), self.random.choice("ab")
        acts: list[tuple[str, Act]] = [
            (f"hold {number}", lambda cast: cast.workers[0].hold(number, holder, 3600)),
            (f"drop {number}", lambda cast: cast.workers[0].drop_hold(number, holder)),
            (f"forget all but {number}", lambda cast: cast.trainer.forget_versions([number])),
            (f"trim below {number}", lambda cast: cast.trainer.trim_ledger(number)),
        ]
        return self.random.choice(acts)

    async def entering(self) -> tuple[str, Act]:
        index = self.random.randrange(2)
        return f"worker {index} enters", lambda cast: enter(cast.workers[index])

    async def upheaval(self) -> tuple[str, Act]:
        drawn = self.random.choice(["trainer", "opening", "save", "save", "restore", "flush", "finish"])
        if drawn == "trainer" or not self.lead.trainers:
            return "a new trainer", self.new_trainer(opens=self.random.random() < 0.5)
        if drawn == "opening":
            return "another opening", opened
        if drawn == "finish":
            return "finish", lambda cast: cast.trainer.finish("drawn")
        if drawn == "save" or not self.lead.saved:
            return "save", save
        self.epoch += 1
        epoch, flush = self.epoch, drawn == "flush"
        return f"restore {'after a flush ' if flush else ''}by epoch {epoch}", lambda cast: restored(cast, epoch, flush)

    def new_trainer(self, *, opens: bool) -> Act:
        self.epoch += 1
        epoch = self.epoch

        async def act(cast: Cast) -> object:
            trainer = await cast.world.trainer()
            state = await trainer.claim(epoch)
            cast.trainers.append(trainer)
            await (opened(cast) if opens or not state.is_open else enter(trainer))
            return None

        return act


def actor(cast: Cast, stream: str, index: int) -> tuple[Broker, str]:
    """Trainers alone work on `scored`: the newest, or the zombie before it."""
    if stream == SCORED:
        index = min(index, len(cast.trainers) - 1)
        return cast.trainers[-1 - index], f"trainer-{index}"
    return cast.workers[index], f"worker-{index}"


async def enter(broker: Broker) -> None:
    await broker.enter(timeout_s=5)


async def opened(cast: Cast) -> None:
    live = (await cast.trainer.look()).live
    await cast.trainer.open_run(**LIMITS, announcement=live or version(0))


async def again(cast: Cast, who: int) -> None:
    assert cast.last_commit
    await cast.trainers[who].commit(*cast.last_commit)


async def save(cast: Cast) -> None:
    live = (await cast.trainer.look()).live
    assert live
    cast.saved = Snapshot(books=await cast.trainer.books(), ledger=await cast.trainer.ledger(), live=live)


async def restored(cast: Cast, epoch: int, flush: bool) -> None:
    """The run as it was saved, on a server that lost everything or only what came later."""
    assert cast.saved
    if flush:
        await cast.world.flush()
    trainer = await cast.world.trainer()
    await insist(lambda: trainer.claim(epoch))
    cast.trainers.append(trainer)
    await trainer.restore(cast.saved.books, cast.saved.ledger, cast.saved.live, **LIMITS)


def imbalance(facts: dict[str, Any]) -> list[str]:
    """What is wrong with a run's facts.

    Per kind, admitted = trained + retired + buried + open; each entry is an open group's; no group trains twice.
    """
    wrong: list[str] = []
    for kind in ("train", "eval"):
        counts: dict[str, int] = {name: n for name, n in facts["counts"].items() if name.startswith(f"{kind}.")}
        admitted = counts.pop(f"{kind}.admitted", 0)
        still_open = sum(each[1] == kind for each in facts["open"].values())
        if admitted != sum(counts.values()) + still_open:
            wrong.append(f"{kind}: admitted {admitted} is not {counts} and {still_open} open")
    for stream in (PROMPTS, ROLLOUTS, SCORED):
        lies = sum(each[0] == stream for each in facts["open"].values())
        if facts["backlog"][stream] != lies:
            wrong.append(f"{stream}: {facts['backlog'][stream]} entries, {lies} open groups")
    missing = [name for name, each in facts["open"].items() if each[0] not in WORK_STREAMS]
    if sorted(missing) != facts["missing"]:
        wrong.append(f"missing {facts['missing']} is not {sorted(missing)}")
    trained = [name for line in facts["ledger"] for name in line.groups]
    if len(trained) != len(set(trained)):
        wrong.append(f"trained twice: {sorted(name for name in set(trained) if trained.count(name) > 1)}")
    return wrong
