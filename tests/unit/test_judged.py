"""A judge is watched and its answers are checked; a run knows from its settings alone whether it needs one."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from broker.errors import Broken, Misconfigured, Poison, Transient
from broker.messages import Group, Prompt
from broker.settings import load_section
from consumers.rewards import create
from consumers.rewards.base import Score
from consumers.rewards.judged import Judged, JudgeFailed
from consumers.rewards.rule_worker import Part, load
from consumers.settings import RewardPart, RewardSection, needs_judge
from deploy.cores import Usable
from deploy.crew import core_shares
from deploy.run_check import checked
from scheduler.pools import needs_slot
from tests.contract.test_judges import numbered


class Told:
    """A judge that answers what it is told to, after so many pauses with a beat each."""

    capacity = 4

    def __init__(
        self, answer: Any = (1.0, 0.0), *, pauses: int = 0, hangs: bool = False, parts: dict[str, Any] | None = None
    ) -> None:
        self.answer, self.pauses, self.hangs, self.parts = answer, pauses, hangs, parts or {}
        self.beats, self.cancelled = 0, False

    async def start(self) -> None:
        """Ready."""

    async def score(self, group: Group) -> Score:
        try:
            for _ in range(self.pauses):
                await asyncio.sleep(0.03)
                self.beats += 1
            if self.hangs:
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        if isinstance(self.answer, Exception):
            raise self.answer
        return Score(rewards=self.answer, parts=self.parts)

    async def close(self) -> None:
        """Nothing is held."""


def two() -> Group:
    return numbered(0, "42", "24")


async def test_a_breakdown_stands_under_the_judges_name() -> None:
    judge = Judged("wise", Told(parts={"kind": [0.5, 1], "short": [1, 1]}))
    found = await judge.score(two())
    assert {name: values.tolist() for name, values in found.items()} == {
        "wise": [1, 0],
        "wise.kind": [0.5, 1],
        "wise.short": [1, 1],
    }
    assert all(values.dtype == np.float32 for values in found.values())


@pytest.mark.parametrize("answer", [[1.0], [1.0, float("nan")], [[1.0, 0.0]], 1.0, [1.0, float("inf")]])
async def test_an_answer_that_is_not_one_number_a_sibling_is_never_a_reward(answer: Any) -> None:
    with pytest.raises(JudgeFailed, match=r"wise answered .* for the 2 siblings of group x/0/0"):
        await Judged("wise", Told(answer)).score(two())
    with pytest.raises(JudgeFailed, match=r"wise\.kind answered"):
        await Judged("wise", Told(parts={"kind": answer})).score(two())


@pytest.mark.parametrize("error", [Transient("away"), ValueError("bad"), Broken("gone"), Misconfigured("no model")])
async def test_what_a_judge_raises_comes_out_as_it_is(error: Exception) -> None:
    with pytest.raises(type(error), match=str(error)):
        await Judged("wise", Told(error)).score(two())


async def test_a_judge_that_shows_no_beat_ends_its_process_and_one_that_does_may_take_its_time() -> None:
    slow = Judged("wise", Told(pauses=10), patience_s=0.1)
    assert (await slow.score(two()))["wise"].tolist() == [1, 0]
    hangs = Told(hangs=True)
    with pytest.raises(Broken, match=r"judge wise has shown no beat for 0\.1 s while x/0/0 waits"):
        await Judged("wise", hangs, patience_s=0.1).score(two())
    assert hangs.cancelled


async def test_a_group_that_is_taken_back_is_taken_from_the_judge() -> None:
    judge = Told(hangs=True)
    asked = asyncio.ensure_future(Judged("wise", judge).score(two()))
    await asyncio.sleep(0.01)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert judge.cancelled


async def test_a_group_without_rollouts_is_poison() -> None:
    bare = Group(id="x/0/0", kind="train", prompt=Prompt(text="", actions=np.zeros(1, np.int32), size=1, seed=0))
    with pytest.raises(Poison, match="no rollouts to judge"):
        await Judged("wise", Told()).score(bare)


# ---- which runs need one


def section(*parts: dict[str, Any]) -> RewardSection:
    return load_section(RewardSection, "reward", {"parts": list(parts)})


@pytest.mark.parametrize(
    ("parts", "needed"),
    [
        ([{"name": "exact_match"}], False),
        ([{"name": "my:rule"}], False),
        ([{"name": "scripted_judge"}], True),
        ([{"name": "exact_match"}, {"name": "scripted_judge", "weight": 0.0}], True),
        ([{"name": "my:Judge", "on": "slot"}], True),
        ([{"name": "my:Judge", "on": "cpu"}], False),
    ],
)
def test_one_part_on_a_slot_makes_it_a_judged_run(parts: list[dict[str, Any]], needed: bool) -> None:
    settings = section(*parts)
    assert needs_judge(settings) is needed
    assert needs_slot(settings.model_dump(mode="json")) is needed, "the scheduler reads the saved settings"
    assert section(*settings.model_dump(mode="json")["parts"]) == settings, "and they load again"


@pytest.mark.parametrize(("name", "on", "right"), [("exact_match", "slot", "cpu"), ("scripted_judge", "cpu", "slot")])
def test_a_listed_name_has_its_place(name: str, on: str, right: str) -> None:
    with pytest.raises(Misconfigured, match=f'"{name}" is scored on = "{right}", leave on out'):
        section({"name": name, "on": on})


def test_a_judge_that_is_taken_for_a_rule_is_told_what_to_write() -> None:
    with pytest.raises(TypeError, match='a judge and no rule: write on = "slot"'):
        load(Part("told", f"{__name__}:Told", {}))


def test_a_rule_that_is_taken_for_a_judge_is_told_what_it_lacks() -> None:
    one = RewardPart(name="consumers.rewards.length:Length", on="slot")
    with pytest.raises(Misconfigured, match=r"a Length without capacity, beats, start, score, close; .*base\.Judge"):
        create(RewardSection(parts=[one]))


def test_a_judged_run_starts_judges_and_no_reward_worker_and_leaves_them_to_slots_where_there_are() -> None:
    judged = {"reward": {"parts": [{"name": "scripted_judge"}]}, "pools": {"judge": {"processes": 2}}}
    usable = Usable(cores=(0, 1))
    plain, fixed = checked({}), checked(judged)
    on_slots = checked({**judged, "scheduler": {"slots": 2}})
    assert set(core_shares(plain, usable)) == {"trainer-0", "rollout-0", "reward-0", "feeder-0"}
    assert set(core_shares(fixed, usable)) == {"trainer-0", "rollout-0", "judge-0", "judge-1", "feeder-0"}
    assert set(core_shares(on_slots, usable)) == {"slot-0", "slot-1", "scheduler-0", "feeder-0"}
