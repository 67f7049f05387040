"""Rules in real processes: whatever one does to its process, only its own group pays, and it is never paid with a
zero."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from broker.errors import Misconfigured, Poison, Transient
from broker.messages import Group, Prompt, Rollouts
from consumers.rewards import create, rule_process
from consumers.rewards.base import Score
from consumers.rewards.rule_pool import RuleFailed, RulePool
from consumers.rewards.weighted import Weighted
from consumers.settings import RewardPart, RewardSection

OBEDIENT = "tests.integration.unruly_rules:obedient"


def group(name: str, *completions: str, **prompt: Any) -> Group:
    size, none = len(completions), np.zeros(0, np.float32)
    rollouts = Rollouts(
        texts=completions,
        actions=np.zeros(0, np.int32),
        offsets=np.zeros(size + 1, np.int32),
        logprobs=none,
        mask=np.zeros(0, np.uint8),
        spans=np.zeros((0, 4), np.int32),
        finishes=("stop",) * size,
    )
    asked = replace(Prompt(text="p", actions=np.zeros(1, np.int32), size=size, seed=0), **prompt)
    return Group(id=name, kind="train", prompt=asked, rollouts=rollouts)


@asynccontextmanager
async def pool(
    *rules: str | RewardPart, timeout_s: float = 20.0, processes: int = 1
) -> AsyncGenerator[tuple[Weighted, RulePool]]:
    parts = [rule if isinstance(rule, RewardPart) else RewardPart(name=rule) for rule in rules or (OBEDIENT,)]
    reward = create(RewardSection(parts=parts, timeout_s=timeout_s, processes=processes))
    (rules_of_it,) = reward.scorers
    assert isinstance(rules_of_it, RulePool)
    try:
        yield reward, rules_of_it
    finally:
        await reward.close()


async def scores(reward: Weighted, *groups: Group) -> list[Score | BaseException]:
    return await asyncio.gather(*(reward.score(each) for each in groups), return_exceptions=True)


def rewards_of(found: list[Score | BaseException]) -> list[list[float] | str]:
    return [each.rewards.tolist() if isinstance(each, Score) else type(each).__name__ for each in found]


def alive(pid: int) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


async def gone(pid: int, seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while alive(pid):
        assert time.monotonic() < deadline, f"process {pid} is still there"
        await asyncio.sleep(0.01)


async def test_every_sibling_gets_its_own_reward() -> None:
    async with pool() as (reward, _):
        found = await reward.score(group("a/0/0", "1", "0.25", "-3"))
    assert found.rewards.tolist() == [1, 0.25, -3]
    assert found.rewards.dtype == np.float32
    assert list(found.parts) == ["obedient"]


async def test_a_rule_sees_prompt_answer_and_meta_as_the_source_wrote_them() -> None:
    async with pool("tests.integration.unruly_rules:length_of_meta") as (reward, _):
        found = await reward.score(
            group("a/0/0", "x", answer="ü", meta={"levels": [1, 2, 3], 4: "a key may be a number"})
        )
    assert found.rewards.tolist() == [5]


async def test_parts_are_weighted_and_kept() -> None:
    parts = (
        RewardPart(name=OBEDIENT, weight=2.0),
        RewardPart(name="length", weight=-1.0, options={"target": 2}),
    )
    async with pool(*parts) as (reward, _):
        found = await reward.score(group("a/0/0", "1", "10"))
    assert found.rewards.tolist() == [1.5, 19]
    assert {name: values.tolist() for name, values in found.parts.items()} == {"obedient": [1, 10], "length": [0.5, 1]}


async def test_a_group_of_no_siblings_has_no_rewards() -> None:
    async with pool() as (reward, _):
        assert (await reward.score(group("a/0/0"))).rewards.tolist() == []


async def test_a_group_without_rollouts_is_poison() -> None:
    prompt = Prompt(text="p", actions=np.zeros(1, np.int32), size=1, seed=0)
    async with pool() as (reward, _):
        with pytest.raises(Poison, match="group a/0/0 has no rollouts"):
            await reward.score(Group(id="a/0/0", kind="train", prompt=prompt))


@pytest.mark.parametrize("deed", ["sleep 1000", "spin", "hold-the-lock"])
async def test_a_rule_that_hangs_costs_its_own_group_by_the_deadline(deed: str) -> None:
    async with pool(timeout_s=0.5) as (reward, _):
        await reward.start()
        begun = time.monotonic()
        found = await scores(reward, *(group(f"a/0/{place}", deed if place == 3 else "1") for place in range(40)))
        assert time.monotonic() - begun < 8
    assert rewards_of(found) == [[1.0]] * 3 + ["Transient"] + [[1.0]] * 36
    assert str(found[3]) == (
        "rule obedient took more than 0.5 s on group a/0/3; its process is replaced; the group is tried again, then "
        "buried; mend the rule, or raise reward.timeout_s if it is slow"
    )


@pytest.mark.parametrize(
    ("deed", "how"), [("crash", r"killed by SIGSEGV"), ("leave 3", r"exit code 3"), ("leave 0", r"exit code 0")]
)
async def test_a_rule_that_kills_its_process_costs_its_own_group(deed: str, how: str) -> None:
    async with pool() as (reward, _):
        found = await scores(reward, *(group(f"a/0/{place}", deed if place == 7 else "1") for place in range(40)))
    assert rewards_of(found) == [[1.0]] * 7 + ["Transient"] + [[1.0]] * 32
    assert f"rule obedient ended its process ({how}) on group a/0/7" in str(found[7])


async def test_the_rule_that_was_at_work_is_named_among_several() -> None:
    async with pool("exact_match", OBEDIENT, timeout_s=0.5) as (reward, _):
        with pytest.raises(Transient, match=r"rule obedient took more than 0\.5 s on group a/0/0"):
            await reward.score(group("a/0/0", "1", "spin", answer="1"))


async def test_many_bad_groups_at_once_each_pay_for_themselves() -> None:
    deeds = {2: "crash", 3: "spin", 11: "raise x", 17: "leave 1", 30: "nan"}
    async with pool(timeout_s=0.5, processes=2) as (reward, _):
        found = await scores(reward, *(group(f"a/0/{place}", "0.5", deeds.get(place, "1")) for place in range(60)))
    kinds = {2: "Transient", 3: "Transient", 11: "RuleFailed", 17: "Transient", 30: "RuleFailed"}
    assert rewards_of(found) == [kinds.get(place, [0.5, 1.0]) for place in range(60)]


@pytest.mark.parametrize(
    ("deed", "told"),
    [
        ("raise answer", r"rule obedient: KeyError: 'answer' \(.*unruly_rules\.py:\d+\), on group a/0/0"),
        ("exit 4", r"rule obedient: SystemExit: 4 "),
        ("nan", r"rule obedient: ValueError: a reward must be a finite float32, not nan"),
        ("much", r"could not convert string to float: 'much'"),
    ],
)
async def test_a_rule_that_raises_or_answers_no_number_is_told_with_its_text(deed: str, told: str) -> None:
    async with pool() as (reward, rules):
        with pytest.raises(RuleFailed, match=told):
            await reward.score(group("a/0/0", "1", deed))
        process = rules.places[0].process
        assert process is not None
        assert process.process.returncode is None, "the process goes on"
        assert (await reward.score(group("a/0/1", "1"))).rewards.tolist() == [1]


async def test_what_a_rule_prints_does_not_tear_the_conversation(capfd: pytest.CaptureFixture[str]) -> None:
    async with pool() as (reward, _):
        assert (await reward.score(group("a/0/0", "print hello", "2"))).rewards.tolist() == [1, 2]
    assert "hello" in capfd.readouterr().err


async def test_a_slow_group_has_its_whole_time_however_many_wait_before_it() -> None:
    async with pool(timeout_s=1.0) as (reward, rules):
        await reward.start()
        rules.places[0].pace_s = 1e-6  # as after many quick groups: they all go in one message
        found = await scores(reward, *(group(f"a/0/{place}", "sleep 0.3") for place in range(6)))
    assert rewards_of(found) == [[1.0]] * 6


async def test_processes_work_side_by_side() -> None:
    async with pool("tests.integration.unruly_rules:pid", processes=2) as (reward, rules):
        for place in range(2):
            await reward.start()
            await rules.places[place].ready(rules.parts)
        found = await scores(reward, *(group(f"a/0/{place}", "x") for place in range(200)))
    assert len({each.rewards[0] for each in found if isinstance(each, Score)}) == 2


async def test_a_group_that_is_no_longer_wanted_is_not_scored(tmp_path: Path) -> None:
    async with pool() as (reward, rules):
        await reward.start()
        first = asyncio.create_task(reward.score(group("a/0/0", "sleep 0.3")))
        unwanted = asyncio.create_task(reward.score(group("a/0/1", "spin")))
        await asyncio.sleep(0)
        unwanted.cancel()
        assert (await first).rewards.tolist() == [1]
        assert (await reward.score(group("a/0/2", "2"))).rewards.tolist() == [2]
        assert not rules.waiting


# ---- starting and ending


@pytest.mark.parametrize(
    ("part", "told"),
    [
        (RewardPart(name="tests.integration.unruly_rules:absent"), r"absent: AttributeError"),
        (RewardPart(name="no_such_module:rule"), r"rule: ModuleNotFoundError: No module named 'no_such_module'"),
        (RewardPart(name="format", options={"pattern": "("}), r"format: error: missing \)"),
        (RewardPart(name="exact_match", options={"strip": 1}), r"exact_match: TypeError: .*'strip'"),
    ],
)
async def test_a_part_that_cannot_be_made_is_told_before_anything_is_scored(part: RewardPart, told: str) -> None:
    async with pool(part) as (reward, _):
        with pytest.raises(Misconfigured, match=rf"\[reward\] parts: {told}.*nothing is scored"):
            await reward.start()
        with pytest.raises(Misconfigured, match=told):
            await reward.score(group("a/0/0", "x"))


async def test_a_process_that_does_not_start_is_transient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule_process, "START_S", 0.5)
    async with pool("tests.integration.unruly_rules:TooSlowToMake") as (reward, _):
        with pytest.raises(Transient, match=r"did not start \(TimeoutError, at most 0\.5 s\)"):
            await reward.start()


async def test_closing_kills_what_is_at_work_and_gives_back_what_waits() -> None:
    async with pool() as (reward, rules):
        await reward.start()
        process = rules.places[0].process
        assert process is not None
        at_work = [asyncio.create_task(reward.score(group(f"a/0/{place}", "spin"))) for place in range(3)]
        while len(rules.waiting) == 3 or not rules.servers:  # noqa: ASYNC110 - until one is at work
            await asyncio.sleep(0.01)
        await reward.close()
        found = await asyncio.gather(*at_work, return_exceptions=True)
        assert [type(each) for each in found] == [Transient] * 3
        await gone(process.process.pid)


async def test_what_a_late_rule_had_started_is_killed_with_it(tmp_path: Path) -> None:
    note = tmp_path / "pids"
    async with pool(timeout_s=1.0) as (reward, _):
        with pytest.raises(Transient):
            await reward.score(group("a/0/0", f"start-a-child {note}"))
    for pid in map(int, note.read_text().split()):
        await gone(pid)


def test_a_pool_that_is_killed_leaves_no_process_even_one_that_hangs(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    code = f"""
import asyncio
from tests.integration.test_rule_pool import group, pool

async def main():
    async with pool() as (reward, rules):
        await reward.start()
        task = asyncio.create_task(reward.score(group("a/0/0", "hold-the-lock")))
        await asyncio.sleep(0.1)
        open({str(note)!r}, "w").write(str(rules.places[0].process.process.pid))
        await task

asyncio.run(main())
"""
    parent = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    try:
        deadline = time.monotonic() + 30
        while not (note.exists() and note.read_text()):
            assert time.monotonic() < deadline
            assert parent.poll() is None
            time.sleep(0.02)
        worker = int(note.read_text())
        assert alive(worker)
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait(10)
    asyncio.run(gone(worker))
