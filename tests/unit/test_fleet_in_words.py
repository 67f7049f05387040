"""A fleet as a person reads it: units at the numbers, a reason for every place, and what says the same told once."""

from __future__ import annotations

from typing import Any

from broker.fleet import Wanted
from deploy.finding import duration
from deploy.inspection import story
from deploy.slots_command import row, shown

SAID: dict[str, Any] = {
    "age_s": 0.4,
    "state": "serving",
    "pool": "judge",
    "for_s": 42.0,
    "held": 2,
    "moved": 3,
    "move_s": 2.345,
    "gpus": "2,3",
    "work": {"rollout": {"items": 7}, "judge": {"items": 40}},
}


def test_a_slot_tells_where_it_is_what_it_did_and_why() -> None:
    record = Wanted(pool="judge", epoch=4, reason="move 1 rollout → judge: 2.0 slots idle", by="scheduler host.1")
    assert shown(row("slot-0", record, SAID)) == {
        "slot": "slot-0",
        "devices": "GPU 2,3",
        "state": "serving",
        "pool": "judge",
        "wanted": "judge",
        "for": "42 s",
        "in hand": 2,
        "done": "rollout 7, judge 40",
        "moves": "3, last 2.3 s",
        "why": "move 1 rollout → judge: 2.0 slots idle",
    }


def test_a_parked_slot_tells_its_reason_and_a_pinned_one_who_pinned_it() -> None:
    pinned = Wanted(pool="judge", epoch=4, pinned=True, reason="by hand", by="ada")
    assert shown(row("slot-0", pinned, SAID))["wanted"] == "judge (pinned)"
    assert shown(row("slot-0", pinned, SAID))["why"] == "by hand: ada"
    parked = {**SAID, "state": "parked", "detail": "died 5 times in a row"}
    assert shown(row("slot-0", pinned, parked))["why"] == "died 5 times in a row"


def test_a_slot_that_is_silent_is_dead() -> None:
    assert row("slot-0", Wanted(pool="judge", epoch=1), {})["state"] == "dead"
    assert row("slot-0", Wanted(pool="judge", epoch=1), {**SAID, "age_s": 11.0})["state"] == "dead"


def test_durations_have_the_unit_that_fits() -> None:
    assert [duration(seconds) for seconds in (0.4, 119, 600, 9000)] == ["0 s", "119 s", "10 min", "2.5 h"]


def test_decisions_that_say_the_same_but_for_a_number_are_told_once() -> None:
    def said(at: str, decision: str, split: dict[str, int], wanted: dict[str, int], *moves: str) -> dict[str, Any]:
        return {"at": at, "decision": decision, "split": split, "wanted": wanted, "moves": list(moves)}

    two, one = {"rollout": 2, "judge": 0}, {"rollout": 1, "judge": 1}
    rows = [
        said("10:00:00", "stay: 0.4 slots idle", two, two),
        said("10:00:05", "stay: 0.7 slots idle", two, two),
        said("10:00:10", "move 1 rollout → judge: 1.0 slots idle", two, one, "slot-1 rollout → judge"),
    ]
    assert story(rows) == [
        {
            "at (UTC)": "10:00:00",
            "times": 2,
            "slots": "rollout 2, judge 0",
            "decision": "stay: 0.7 slots idle",
            "moves": "",
        },
        {
            "at (UTC)": "10:00:10",
            "times": 1,
            "slots": "rollout 2 → 1, judge 0 → 1",
            "decision": "move 1 rollout → judge: 1.0 slots idle",
            "moves": "slot-1 rollout → judge",
        },
    ]
