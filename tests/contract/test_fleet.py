"""A fleet's records: nobody moves a slot on an old picture, without the lease, or against a pin."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
import pytest_asyncio
import redis

from broker import embedded_server
from broker.errors import Fenced
from broker.fleet import Fleet, Lease, Served, Wanted
from broker.redis_broker import RedisBroker


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with embedded_server.serving(made := tmp_path_factory.mktemp("fleet")):
        yield made


@pytest_asyncio.fixture
async def fleet(folder: Path) -> AsyncIterator[Fleet]:
    made = await Fleet.connect(embedded_server.address(folder), f"fleet-{uuid4().hex[:8]}")
    yield made
    await made.close()


async def led(fleet: Fleet, holder: str = "one", lease_s: float = 30) -> Lease:
    lease = await fleet.lead(holder, lease_s)
    assert isinstance(lease, Lease)
    return lease


async def test_a_slot_comes_with_a_pool_and_keeps_the_record_it_finds(fleet: Fleet) -> None:
    assert await fleet.wanted("gpu0") == Wanted()
    first = await fleet.offer("gpu0", "rollout", 1)
    assert (first.pool, first.epoch) == ("rollout", 1)
    assert (await fleet.offer("gpu0", "train", 1)).pool == "rollout"
    assert await fleet.slots() == ["gpu0"]


async def test_who_decided_on_an_older_picture_is_refused(fleet: Fleet) -> None:
    await fleet.offer("gpu0", "rollout", 1)
    lease = await led(fleet)
    moved = await fleet.assign("gpu0", "train", seen=1, reason="backlog", by="scheduler", lease=lease)
    assert (moved.answer, moved.pool, moved.epoch) == ("done", "train", 2)
    late = await fleet.assign("gpu0", "judge", seen=1, reason="backlog", by="scheduler", lease=lease)
    assert (late.answer, late.pool, late.epoch) == ("stale", "train", 2)
    assert (await fleet.wanted("gpu0")).reason == "backlog"


async def test_of_two_schedulers_one_leads_and_the_other_changes_nothing(fleet: Fleet) -> None:
    first = await led(fleet, "one", 0.2)
    assert await fleet.lead("two", 30) == "one"
    second, deadline = await fleet.lead("two", 30), time.monotonic() + 10
    while isinstance(second, str):
        assert time.monotonic() < deadline, "the lease never ended"
        await asyncio.sleep(0.01)
        second = await fleet.lead("two", 30)
    assert second.epoch > first.epoch
    assert (await fleet.assign("gpu0", "train", seen=0, reason="", by="one", lease=first)).answer == "fenced"
    assert await fleet.wanted("gpu0") == Wanted()
    assert (await fleet.assign("gpu0", "train", seen=0, reason="", by="two", lease=second)).answer == "done"
    assert await led(fleet, "two") == second
    await fleet.resign("two")
    assert (await led(fleet, "one")).epoch > second.epoch


async def test_what_a_person_pinned_no_scheduler_moves_until_it_is_unpinned(fleet: Fleet) -> None:
    lease = await led(fleet)
    pinned = await fleet.assign("gpu0", "judge", seen=0, reason="by hand", by="ann", pin="pin")
    refused = await fleet.assign("gpu0", "train", seen=pinned.epoch, reason="", by="one", lease=lease)
    assert (refused.answer, refused.pool) == ("pinned", "judge")
    assert (await fleet.wanted("gpu0")).pinned
    free = await fleet.assign("gpu0", "judge", seen=pinned.epoch, reason="", by="ann", pin="unpin")
    assert (await fleet.assign("gpu0", "train", seen=free.epoch, reason="", by="one", lease=lease)).answer == "done"


async def test_a_server_that_forgot_takes_back_what_the_slot_remembers(fleet: Fleet, folder: Path) -> None:
    await fleet.offer("gpu0", "rollout", 1)
    lease = await led(fleet)
    for seen in range(1, 5):
        await fleet.assign("gpu0", "train", seen=seen, reason="", by="one", lease=lease)
    with redis.Redis.from_url(embedded_server.address(folder)) as client:
        client.flushall()
    back = await fleet.offer("gpu0", "train", 5)
    assert (back.pool, back.epoch) == ("train", 5)
    assert (await fleet.assign("gpu0", "judge", seen=5, reason="", by="one", lease=lease)).answer == "fenced"


async def test_a_pool_that_is_full_takes_no_more_slots_however_the_orders_race(fleet: Fleet) -> None:
    for slot in ("gpu0", "gpu1", "gpu2"):
        await fleet.offer(slot, "rollout", 1)
    orders = [fleet.assign(slot, "train", seen=1, reason="", by="ann", most=1) for slot in ("gpu0", "gpu1", "gpu2")]
    answers = await asyncio.gather(*orders)
    assert sorted(one.answer for one in answers) == ["done", "full", "full"]
    [has] = [slot for slot, record in (await fleet.records()).items() if record.pool == "train"]
    assert {one.pool for one in answers if one.answer == "full"} == {has}
    assert (await fleet.assign(has, "train", seen=2, reason="", by="ann", most=1)).answer == "done", "it has its place"
    assert (await fleet.assign(has, "", seen=3, reason="", by="ann", most=0)).answer == "done", "no pool is never full"


async def test_an_order_may_name_its_epoch_as_long_as_it_is_newer(fleet: Fleet) -> None:
    await fleet.offer("gpu0", "rollout", 7)
    assert (await fleet.assign("gpu0", "train", seen=7, reason="", by="ann", epoch=100)).epoch == 100
    assert (await fleet.assign("gpu0", "judge", seen=100, reason="", by="ann", epoch=50)).epoch == 101


async def test_once_a_slot_has_another_host_the_one_before_it_is_fenced(fleet: Fleet, folder: Path) -> None:
    first = await fleet.host("gpu0")
    await fleet.offer("gpu0", "rollout", 1, first)
    await fleet.say("gpu0", {"node": "old", "state": "serving"}, first)
    second = await fleet.host("gpu0")
    assert second > first
    with pytest.raises(Fenced, match="hosted by old now"):  # the new one has not said its name yet
        await fleet.offer("gpu0", "train", 9, first)
    await fleet.say("gpu0", {"node": "new", "state": "vacant"}, second)
    with pytest.raises(Fenced, match="slot gpu0 is hosted by new now; this worker ends"):
        await fleet.say("gpu0", {"node": "old", "state": "dead"}, first)
    assert (await fleet.said())["gpu0"]["node"] == "new"
    assert (await fleet.wanted("gpu0")).pool == "rollout"
    with redis.Redis.from_url(embedded_server.address(folder)) as client:
        client.flushall()
    await fleet.offer("gpu0", "rollout", 1, first)
    await fleet.offer("gpu0", "rollout", 1, second)
    with pytest.raises(Fenced):
        await fleet.offer("gpu0", "rollout", 1, first)
    assert await fleet.host("gpu0") > second


async def test_a_thousand_records_are_read_at_once(fleet: Fleet) -> None:
    pipe = fleet.client.pipeline(transaction=False)
    for number in range(1000):
        pipe.sadd(fleet.prefix + "slots", f"gpu{number}")
        pipe.hset(f"{fleet.prefix}slot:gpu{number}", mapping={"pool": "rollout", "epoch": number + 1})
    await pipe.execute()
    before = (await fleet.client.info("stats"))["total_reads_processed"]
    records = await fleet.records()
    assert (await fleet.client.info("stats"))["total_reads_processed"] - before < 100
    assert len(records) == 1000
    assert records["gpu7"] == Wanted(pool="rollout", epoch=8)


async def test_a_script_is_sent_once_and_again_to_a_server_that_forgot_it(fleet: Fleet) -> None:
    async def received() -> int:
        return (await fleet.client.info("stats"))["total_net_input_bytes"]

    await fleet.offer("gpu0", "rollout", 1)
    before = await received()
    for _ in range(10):
        await fleet.offer("gpu0", "rollout", 1)
    assert await received() - before < 10 * 300
    await fleet.client.script_flush()
    assert (await fleet.offer("gpu0", "rollout", 1)).pool == "rollout"


async def test_one_process_is_asked_for_without_the_others(folder: Path) -> None:
    broker = await RedisBroker.connect(embedded_server.address(folder), f"run-{uuid4().hex[:8]}")
    assert await broker.last_beat("gpu0") == {}
    await broker.beat("gpu0", {"role": "rollout", "pid": 7})
    await broker.beat("gpu1", {"role": "rollout", "pid": 8})
    assert (await broker.last_beat("gpu0"))["pid"] == 7
    await broker.close()


async def test_a_report_ages_and_a_decision_stays(fleet: Fleet) -> None:
    await fleet.say("gpu0", {"state": "serving", "pid": 7})
    said = await fleet.said()
    assert (said["gpu0"]["state"], said["gpu0"]["pid"]) == ("serving", 7)
    assert 0 <= said["gpu0"]["age_s"] < 5
    for number in range(3):
        await fleet.decided({"now": number, "sentence": f"stay {number}"})
    assert [one["sentence"] for one in await fleet.decisions(2)] == ["stay 1", "stay 2"]
    await fleet.offer("gpu0", "rollout", 1)
    await fleet.forget("gpu0")
    assert await fleet.slots() == []
    assert await fleet.said() == {}


async def test_moves_a_leader_ordered_are_remembered_with_their_age_unless_the_slot_was_idle_or_a_person_said_so(
    fleet: Fleet,
) -> None:
    lease = await led(fleet)
    for seen, slot in enumerate(["gpu0", "gpu1", "gpu0"]):
        epoch = (await fleet.wanted(slot)).epoch
        await fleet.assign(slot, f"pool{seen}", seen=epoch, reason="", by="one", lease=lease)
    assert (await fleet.assign("gpu0", "train", seen=0, reason="", by="one", lease=lease)).answer == "stale"
    await fleet.assign("gpu2", "judge", seen=0, reason="by hand", by="ann")
    ages = await fleet.moves(60)
    assert len(ages) == 3
    assert 60 > ages[0] >= ages[1] >= ages[2] >= 0
    await fleet.client.zadd(fleet.prefix + "moves", {"gpu9 1": 1.0})
    assert len(await fleet.moves(60)) == 3
    await fleet.assign("gpu1", "judge", seen=1, reason="", by="one", lease=lease)
    assert await fleet.client.zcard(fleet.prefix + "moves") == 4
    await fleet.assign("gpu2", "rollout", seen=1, reason="nothing to do", by="one", lease=lease, idle=True)
    assert (await fleet.wanted("gpu2")).pool == "rollout"
    assert len(await fleet.moves(60)) == 4


async def test_only_the_leader_notes_what_moves_cost_and_its_successor_reads_it(fleet: Fleet) -> None:
    assert await fleet.costs() == {}
    first = await led(fleet, "one")
    assert await fleet.note_costs({"rollout": 9.5, "train": 30.0}, first)
    await fleet.resign("one")
    second = await led(fleet, "two")
    assert not await fleet.note_costs({"rollout": 1.0}, first)
    assert await fleet.note_costs({"rollout": 8.25}, second)
    assert await fleet.costs() == {"rollout": 8.25, "train": 30.0}


async def test_a_fleet_serves_one_named_run(fleet: Fleet) -> None:
    assert await fleet.served() is None
    served = Served(run="addition-1", folder="/runs/addition-1", url=fleet.connection.url)
    await fleet.serve(served)
    assert await fleet.served() == served


async def test_the_record_of_the_run_holds_no_password_and_each_uses_its_own_address(fleet: Fleet) -> None:
    await fleet.serve(Served(run="addition-1", folder="/runs/addition-1", url="redis://:sesame@elsewhere:6379/0"))
    record = await fleet.client.hgetall(fleet.prefix + "run")
    assert record[b"url"] == "redis://:…@elsewhere:6379/0".encode()
    served = await fleet.served()
    assert served is not None and served.url == fleet.connection.url


async def test_a_server_that_lost_the_run_is_reminded_but_never_overruled(fleet: Fleet) -> None:
    url = fleet.connection.url
    old = Served(run="addition-1", folder="/runs/addition-1", url=url, asked="first")
    assert await fleet.remind(old) == old
    new = Served(run="addition-2", folder="/runs/addition-2", url=url, asked="second")
    await fleet.serve(new)
    assert await fleet.remind(old) == new
    assert await fleet.served() == new
