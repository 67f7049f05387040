"""The scheduler when something is wrong: it says what, moves nothing it should not, and goes on when that is mended.

Run, streams and records are real. Slots are words in the fleet's record: what their supervisors would say is said here.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from structlog.testing import capture_logs

from broker import embedded_server
from broker.cancellation import end
from broker.errors import Unavailable
from broker.fleet import Fleet, Served
from broker.settings import RUN_SETTINGS_FILE
from deploy.run_check import load_run
from deploy.run_folder import new_run_folder
from scheduler import daemon as daemon_module
from scheduler.daemon import Daemon
from scheduler.placements.proportional import Proportional
from tests.contract.broker_world import RedisWorld, open_run

EAGER = ["scheduler.dwell_s=0", "scheduler.switching=1", "scheduler.hysteresis=0", "scheduler.every_s=0.05"]


class Scene:
    """One run, one fleet, and schedulers that come and go."""

    def __init__(self, world: RedisWorld, folder: Path, fleet: Fleet) -> None:
        self.world, self.folder, self.fleet = world, folder, fleet
        self.said: list[str] = []
        self.running: list[asyncio.Task[None]] = []
        self.reports: dict[str, dict[str, Any]] = {}

    async def slot(self, name: str, pool: str, **facts: Any) -> None:
        """A slot that serves the pool its record names."""
        record = await self.fleet.offer(name, pool, 1)
        work = {"busy_s": 10.0, "spent_s": 8.0, "items": 4, "places": 6.0, "half_at": 0.0}
        serving = {"state": "serving", "pool": record.pool, "epoch": record.epoch, "node": "worker", "ordered_s": 100.0}
        self.reports[name] = {**serving, "work": {record.pool: work}, **facts}
        await self.fleet.say(name, self.reports[name])

    def daemon(self, holder: str = "one", ring: Callable[[str, str, int], None] = lambda *_: None) -> Daemon:
        return Daemon(self.fleet, holder, ring, self.said.append)

    def start(self, daemon: Daemon) -> asyncio.Task[None]:
        self.running.append(asyncio.create_task(daemon.run(asyncio.Event())))
        return self.running[-1]

    async def until(self, reached: Callable[[], Any], seconds: float = 60.0) -> Any:
        """Wait for it; the daemon must live meanwhile. Slots go on saying what they said: silent ones count as dead."""
        deadline, said_at = time.monotonic() + seconds, time.monotonic()
        while True:
            if time.monotonic() - said_at > 2:
                said_at = time.monotonic()
                with contextlib.suppress(Unavailable):
                    for name, report in self.reports.items():
                        await self.fleet.say(name, report)
            found = reached()
            found = await found if asyncio.iscoroutine(found) else found
            if found:
                return found
            assert not any(task.done() for task in self.running), "a scheduler has ended"
            assert time.monotonic() < deadline, self.said
            await asyncio.sleep(0.02)

    def heard(self, words: str) -> Callable[[], bool]:
        return lambda: any(words in sentence for sentence in self.said)

    async def decides_on(self) -> None:
        """It makes decisions, again."""
        before = len(await self.fleet.decisions(10_000))
        await self.until(lambda: self.more_than(before))

    async def more_than(self, count: int) -> bool:
        return len(await self.fleet.decisions(10_000)) > count

    def change(self, **scheduler: Any) -> None:
        path = self.folder / RUN_SETTINGS_FILE
        raw = json.loads(path.read_text())
        raw["scheduler"].update(scheduler)
        path.write_text(json.dumps(raw))

    async def kill(self, task: asyncio.Task[None]) -> None:
        """Without a last word: the lease stays until it ends."""
        self.running.remove(task)
        await end([task])


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    folder = new_run_folder(load_run("addition", EAGER), tmp_path / "runs", datetime.now(UTC)).resolve()
    with embedded_server.serving(tmp_path / "redis"):
        url = embedded_server.address(tmp_path / "redis")
        world, fleet = RedisWorld(tmp_path / "redis"), await Fleet.connect(url, f"fleet-{uuid4().hex[:6]}")
        await fleet.serve(Served(run=world.run, folder=str(folder), url=url))
        await open_run(world, cap=64, groups=32)
        made = Scene(world, folder, fleet)
        yield made
        for task in list(made.running):
            await made.kill(task)
        await fleet.close()
        await world.close()


async def test_a_run_whose_folder_is_gone_moves_no_slot_until_it_is_back(scene: Scene) -> None:
    await scene.slot("gpu0", "rollout")
    scene.start(scene.daemon())
    await scene.decides_on()
    aside = scene.folder.with_name("aside")
    shutil.move(scene.folder, aside)
    await scene.until(scene.heard("waiting: "))
    assert str(scene.folder) in scene.said[-1]
    before = await scene.fleet.decisions(10_000)
    shutil.move(aside, scene.folder)
    await scene.decides_on()
    assert scene.said.count(scene.said[-1]) < 5
    assert [move for one in before for move in one["moves"]] == []


@pytest.mark.parametrize(
    ("content", "words"),
    [("{", "is no JSON"), ("{}", "nothing is said of 'scheduler'"), ("[]", "cannot be used"), ('{"scheduler": 3}', "")],
)
async def test_settings_that_cannot_be_used_are_named_once_and_read_again(
    scene: Scene, content: str, words: str
) -> None:
    path = scene.folder / RUN_SETTINGS_FILE
    good = path.read_text()
    path.write_text(content)
    await scene.slot("gpu0", "rollout")
    scene.start(scene.daemon())
    await scene.until(scene.heard("waiting: "))
    assert words in scene.said[-1]
    await asyncio.sleep(1.2)  # another look, at the same file: nothing new is said
    assert len(scene.said) == 2
    path.write_text(good)
    await scene.decides_on()


async def test_a_placement_that_does_not_exist_is_named_until_another_is_written_down(scene: Scene) -> None:
    scene.change(placement="presure")
    await scene.slot("gpu0", "rollout")
    scene.start(scene.daemon())
    await scene.until(scene.heard('placement = "presure"'))
    assert "pressure" in scene.said[-1]
    scene.change(placement="pressure")
    await scene.decides_on()


async def test_a_placement_that_fails_leaves_slots_where_they_are_and_the_story_says_why(scene: Scene) -> None:
    scene.change(placement="tests.integration.unruly_placement:make")
    await scene.slot("gpu0", "rollout")
    await scene.slot("gpu1", "rollout")
    scene.start(scene.daemon())
    await scene.until(lambda: scene.more_than(3))
    story = await scene.fleet.decisions()
    assert all("ZeroDivisionError: 2 pools and no idea" in one["sentence"] for one in story)
    assert [move for one in story for move in one["moves"]] == []
    scene.change(placement="fixed", split={"rollout": 1, "train": 1})
    await scene.until(lambda: moved(scene, "train"))


async def test_a_placement_that_goes_on_failing_is_logged_once_and_again_when_it_had_recovered(scene: Scene) -> None:
    scene.change(placement="tests.integration.unruly_placement:make")
    await scene.slot("gpu0", "rollout")
    daemon = scene.daemon()
    with capture_logs() as logged:
        scene.start(daemon)
        await scene.until(lambda: scene.more_than(5))
        assert [line["event"] for line in logged].count("the placement failed") == 1
        assert daemon.charge is not None
        raises, daemon.charge.placement = daemon.charge.placement, Proportional()
        await scene.until(lambda: said_last(scene, "slot-seconds of work waiting"))
        daemon.charge.placement = raises
        await scene.until(lambda: said_last(scene, "ZeroDivisionError"))
        await scene.decides_on()
    assert [line["event"] for line in logged].count("the placement failed") == 2


async def test_a_leader_whose_cycles_are_longer_than_its_lease_stays_the_leader(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon_module, "LEASE_S", 2.0)
    scene.change(every_s=4.0)
    await scene.slot("gpu0", "rollout")
    first = scene.daemon("first")
    scene.start(first)
    await scene.until(lambda: first.charge)
    scene.start(scene.daemon("second"))
    learned = first.charge
    for _ in range(2):
        await scene.decides_on()
    assert first.charge is learned, "what it has learned of rates was thrown away"
    assert {line for line in scene.said if "leading" in line} == {"leading, epoch 1"}
    assert len(await scene.fleet.decisions()) < 6, "a renewed lease is no cycle"


async def test_a_report_nobody_understands_stops_no_scheduler(scene: Scene) -> None:
    await scene.slot("gpu0", "rollout", state="levitating")
    scene.start(scene.daemon())
    await scene.until(scene.heard("levitating"))
    await scene.slot("gpu0", "rollout")
    await scene.decides_on()


async def test_a_server_that_goes_away_is_waited_for(scene: Scene) -> None:
    await scene.slot("gpu0", "rollout")
    scene.start(scene.daemon())
    await scene.decides_on()
    embedded_server.stop(scene.world.folder)
    await scene.until(scene.heard("the server did not answer"))
    embedded_server.ensure(scene.world.folder)
    await scene.decides_on()


async def test_a_bell_that_fails_takes_back_no_order(scene: Scene) -> None:
    def broken(*_: object) -> None:
        raise ConnectionError("no such exchange")

    scene.change(placement="fixed", split={"rollout": 1, "train": 1})
    await scene.slot("gpu0", "rollout")
    await scene.slot("gpu1", "rollout")
    scene.start(scene.daemon(ring=broken))
    await scene.until(lambda: moved(scene, "train"))
    await scene.decides_on()


async def test_the_next_leader_plans_with_what_the_last_one_measured(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon_module, "LEASE_S", 3.0)
    first = scene.start(scene.daemon("first"))
    await scene.slot("gpu0", "rollout", moved=1, move_s=99.0)
    await scene.decides_on()
    await scene.slot("gpu0", "rollout", moved=2, move_s=12.5)
    await scene.until(lambda: costs(scene, {"rollout": 12.5}))
    await scene.kill(first)
    second = scene.daemon("second")
    scene.start(second)
    await scene.until(scene.heard("leading, epoch 2"))
    await scene.decides_on()
    assert (await scene.fleet.decisions(1))[0]["numbers"]["move_s.rollout"] == 12.5
    work = {"busy_s": 20.0, "spent_s": 16.0, "items": 8, "places": 6.0}
    await scene.slot("gpu0", "rollout", moved=2, move_s=12.5, work={"rollout": work})
    await scene.decides_on()
    assert second.charge is not None
    service = second.charge.lookout.rates.service()["rollout"]
    assert (service.move_s, service.places, service.item_s) == (12.5, 6.0, 2.0)


async def test_a_move_is_remembered_however_many_decisions_followed(scene: Scene) -> None:
    scene.change(placement="fixed", split={"rollout": 1, "train": 1})
    await scene.slot("gpu0", "rollout")
    await scene.slot("gpu1", "rollout")
    first = scene.start(scene.daemon())
    await scene.until(lambda: moved(scene, "train"))
    await scene.kill(first)
    for _ in range(1500):
        await scene.fleet.decided({"at": time.time(), "now": time.time(), "sentence": "stay", "moves": []})
    ordered = await scene.fleet.moves(1800)
    assert len(ordered) == 1
    assert 0 <= ordered[0] < 60
    assert await scene.fleet.moves(0) == []


async def moved(scene: Scene, target: str) -> bool:
    return any(move["target"] == target for one in await scene.fleet.decisions() for move in one["moves"])


async def said_last(scene: Scene, words: str) -> bool:
    return words in (await scene.fleet.decisions(1))[0]["sentence"]


async def costs(scene: Scene, expected: dict[str, float]) -> bool:
    return await scene.fleet.costs() == expected


async def test_the_bell_of_a_slot_that_a_person_empties_says_so(scene: Scene) -> None:
    await scene.slot("gpu0", "rollout")
    await scene.slot("gpu1", "train")
    rung: list[tuple[str, str, int]] = []
    scene.start(scene.daemon(ring=lambda *bell: rung.append(bell)))
    await scene.decides_on()
    seen = (await scene.fleet.wanted("gpu1")).epoch
    await scene.fleet.assign("gpu1", "", seen=seen, reason="by hand", by="a person", pin="pin")
    await scene.until(lambda: any(epoch == seen + 1 for _, _, epoch in rung))
    assert {pool for _, pool, epoch in rung if epoch == seen + 1} == {""}
