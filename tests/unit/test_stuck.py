"""What is stuck and why: each cause named once, with role, entry and mend, and what only follows from it left out."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from broker.reports import SERVER_FULL
from broker.standing import Pending, ServerStanding, StreamStanding, Unread
from deploy.fleet_facts import pools_of
from deploy.screen import screen
from deploy.snapshot import WAITING_FOR_THE_TRAINER, Decision, Goal, Process, Slot, Snapshot
from deploy.stuck import findings
from deploy.watchdog import who_holds
from scheduler.pools import SHIPPED

ALL_WELL = {
    "feeder-0": Process(role="feeder", pid=5, stage="the open set is full"),
    "rollout-0": Process(role="rollout", pid=6, stage="sampling", ready=True, held=4),
    "reward-0": Process(role="reward", pid=7, stage="scoring", ready=True, held=3),
    "trainer-0": Process(role="trainer", pid=8, stage="waiting: 6 of 8 groups scored, 16 open", ready=True),
}
STREAMS = {
    "prompts": StreamStanding(
        backlog=7,
        pending=4,
        readers={"rollout-0.1": 4},
        idlest=Pending(entry_id="1-0", group="a/0/7", reader="rollout-0.1", idle_s=0.5, age_s=3, deliveries=1),
        unread=Unread(entry_id="2-0", group="a/0/8", age_s=2),
    ),
    "rollouts": StreamStanding(
        backlog=3,
        pending=3,
        readers={"reward-0.2": 3},
        idlest=Pending(entry_id="3-0", group="a/0/4", reader="reward-0.2", idle_s=0.1, age_s=1, deliveries=2),
    ),
    "scored": StreamStanding(backlog=6, pending=6, readers={"trainer": 6}),
}
RUNNING = Snapshot(
    run="demo",
    goal=Goal(steps=400, staleness=1),
    elapsed_s=65.0,
    stage="training",
    version=3,
    streams=STREAMS,
    counts={"train.admitted": 100, "train.trained": 84, "train.open": 16},
    open=16,
    cap=16,
    groups=8,
    processes=ALL_WELL,
    pools=tuple(pools_of((), {}, ALL_WELL)),
    server=ServerStanding(name="valkey", version="9", used_bytes=2**20, limit_bytes=2**30, policy="noeviction"),
    is_open=True,
)
KINDS = tuple(SHIPPED.values())


def with_processes(**changed: Process) -> Snapshot:
    processes = {**ALL_WELL, **{name.replace("_", "-"): process for name, process in changed.items()}}
    return replace(RUNNING, processes=processes, pools=tuple(pools_of((), {}, processes)))


def with_slots(backlog: dict[str, int], **slots: Slot) -> Snapshot:
    streams = {name: StreamStanding(backlog=backlog.get(name, 0)) for name in STREAMS}
    streams = {
        name: replace(stream, unread=Unread(entry_id="1-0", group="a/0/1", age_s=30)) if stream.backlog else stream
        for name, stream in streams.items()
    }
    processes = {"feeder-0": ALL_WELL["feeder-0"]}
    decision = Decision(sentence="stay", age_s=1, leader="host.1", lease_left_s=12)
    pools = tuple(pools_of(KINDS, slots, processes))
    return replace(RUNNING, streams=streams, slots=slots, processes=processes, pools=pools, decision=decision)


def names(snapshot: Snapshot) -> list[str]:
    return [finding.name for finding in findings(snapshot)]


def test_a_run_that_moves_has_nothing_stuck() -> None:
    assert findings(RUNNING) == []
    assert findings(with_slots({"prompts": 5}, a=Slot(state="moving", pool="rollout", wanted="rollout"))) == []


def test_a_server_that_is_silent_is_all_that_can_be_said() -> None:
    silent = replace(RUNNING, processes={}, unanswered="ConnectionError: refused", unanswered_s=42.0)
    (finding,) = findings(silent)
    assert (finding.name, finding.since_s, finding.why) == ("server-silent", 42.0, "ConnectionError: refused")


def test_a_server_that_refuses_writes_is_named_with_its_numbers_and_the_reason() -> None:
    full = ServerStanding(name="valkey", used_bytes=2**24, limit_bytes=2**24, policy="noeviction", refused=17)
    (finding,) = findings(replace(RUNNING, server=full, full_s=5.0))
    assert finding.name == "server-full"
    assert "(16.0 of 16.0 MB in use, 17 writes refused)" in finding.what
    feeder = replace(ALL_WELL["feeder-0"], stage=SERVER_FULL)
    assert names(with_processes(feeder_0=feeder)) == ["server-full"], "one look suffices"
    assert names(replace(RUNNING, server=replace(full, replica=True))) == ["server-refuses"]
    assert names(replace(RUNNING, server=replace(full, disk_error="its disk is full"))) == ["server-refuses"]
    assert names(replace(RUNNING, server=replace(full, policy="allkeys-lru"))) == ["server-evicts"]


def test_a_frozen_process_is_named_once_with_what_it_holds() -> None:
    frozen = replace(ALL_WELL["reward-0"], age_s=42.0)
    (finding,) = findings(with_processes(reward_0=frozen, reward_1=replace(ALL_WELL["reward-0"], pid=9)))
    words = "reward-0 (pid 7) has not reported for 42 s, last 'scoring': it is frozen or dead"
    assert (finding.name, finding.what, finding.why) == ("process-silent", words, "it holds 3 groups of `rollouts`")
    assert who_holds(with_processes(reward_0=frozen)).startswith(words)


def test_a_stream_that_nobody_reads_is_the_cause_and_its_silent_reader_the_reason() -> None:
    waiting = {
        **STREAMS,
        "prompts": replace(STREAMS["prompts"], unread=Unread(entry_id="2-0", group="a/0/8", age_s=60)),
    }
    dead = replace(with_processes(rollout_0=replace(ALL_WELL["rollout-0"], age_s=60.0)), streams=waiting)
    (finding,) = findings(dead)
    assert finding.name == "no-reader"
    assert finding.what == "7 groups wait in `prompts` (oldest a/0/8) and nobody takes them"
    assert "rollout-0 (pid 6) has not reported for 60 s" in finding.why
    assert "4 of them in the hands of rollout-0.1" in finding.why
    left = replace(with_processes(rollout_0=replace(ALL_WELL["rollout-0"], age_s=60.0, left=True)), streams=waiting)
    assert "rollout-0 left 60 s ago" in findings(left)[0].why


def test_a_process_that_went_long_ago_and_holds_nothing_is_forgotten() -> None:
    gone = Process(role="reward", pid=9, stage="scoring", age_s=599.0)
    (finding,) = findings(with_processes(reward_9=gone))
    assert (finding.name, finding.holds) == ("process-silent", False)
    assert findings(with_processes(reward_9=replace(gone, age_s=601.0))) == []


def test_a_living_scorer_that_finishes_nothing_is_named_with_its_oldest_entry() -> None:
    idle = Pending(entry_id="3-0", group="a/0/4", reader="reward-0.2", idle_s=21.0, age_s=25, deliveries=2)
    (finding,) = findings(replace(RUNNING, streams={**STREAMS, "rollouts": replace(STREAMS["rollouts"], idlest=idle)}))
    assert (finding.name, finding.since_s) == ("entry-stuck", 21.0)
    assert finding.what == ("reward-0 (pid 7) brings group a/0/4 no further (entry 3-0 of `rollouts`, delivery 2)")
    assert finding.why == "it reports, says 'scoring' and has finished nothing of the 3 groups of `rollouts` it holds"


def test_a_trainer_that_waits_for_groups_that_cannot_come_is_told_apart() -> None:
    dry = {**STREAMS, "prompts": StreamStanding(), "rollouts": StreamStanding()}
    left = with_processes(feeder_0=replace(ALL_WELL["feeder-0"], age_s=30.0, left=True))
    (finding,) = findings(replace(left, streams=dry, open=6))
    assert finding.name == "no-feeder"
    assert "groups that cannot come (6 of 8 scored, 0 on the way)" in finding.what
    assert "feeder-0 left 30 s ago" in finding.why
    (finding,) = findings(replace(left, open=18))
    assert "2 restored groups among them" in finding.what
    assert findings(left) == [], "what is open still comes without a feeder"


def test_a_closed_run_whose_trainer_died_waits_for_a_trainer() -> None:
    dead = with_processes(trainer_0=replace(ALL_WELL["trainer-0"], age_s=30.0))
    (finding,) = findings(replace(dead, is_open=False, stage=WAITING_FOR_THE_TRAINER))
    assert finding.name == "not-open"
    assert "trainer-0 (pid 8) has not reported for 30 s" in finding.why


def test_a_parked_slot_holds_the_run_only_where_nobody_else_serves_its_pool() -> None:
    parked = Slot(state="parked", pool="rollout", wanted="rollout", for_s=90.0, why="its command is wrong")
    serving = Slot(state="serving", pool="rollout", wanted="rollout")
    (finding,) = findings(with_slots({"prompts": 5}, a=parked, b=serving))
    assert (finding.name, finding.why, finding.holds) == ("slot-parked", "its command is wrong", False)
    assert "tidemill slots move a rollout" in finding.mend
    (finding,) = findings(with_slots({"prompts": 5}, a=parked))
    assert (finding.name, finding.holds) == ("no-reader", True)
    assert "a is parked (its command is wrong)" in finding.why
    assert names(with_slots({}, a=replace(parked, state="dead", age_s=50.0))) == ["slot-dead"]


def test_a_fleet_that_nobody_leads_is_held_up_only_by_work_that_nobody_serves() -> None:
    serving = Slot(state="serving", pool="rollout", wanted="rollout")
    orphaned = replace(
        with_slots({}, a=serving), decision=Decision(sentence="stay", age_s=60, leader="h.1", lease_left_s=-45)
    )
    (finding,) = findings(orphaned)
    assert (finding.name, finding.since_s, finding.holds) == ("no-leader", 45, False)
    (finding,) = findings(replace(orphaned, decision=Decision(sentence="stay", age_s=60, leader="h.1")))
    assert (finding.name, finding.since_s) == ("no-leader", None), "it gave the lease back; nobody knows when"
    waiting = with_slots({"rollouts": 5}, a=serving)
    (finding,) = findings(replace(waiting, decision=orphaned.decision))
    assert finding.holds and finding.why.endswith("nobody serves judge")
    assert findings(waiting) == [], "as long as one leads, sharing slots in time is its affair"


@pytest.mark.parametrize(
    ("dead", "admitted", "named"), [(8, 100, False), (9, 100, True), (9, 900, False), (10, 900, True)]
)
def test_dead_letters_are_named_above_a_share_and_a_number(dead: int, admitted: int, named: bool) -> None:
    counts = {**RUNNING.counts, "train.admitted": admitted}
    for snapshot in (
        replace(RUNNING, dead=dead, counts=counts),
        replace(RUNNING, dead=dead, counts=counts, finished="x"),
    ):
        assert (names(snapshot) == ["dead-letters"]) == named


def test_a_single_burial_is_named_while_no_group_has_got_through() -> None:
    first = replace(RUNNING, dead=1, counts={"train.admitted": 16}, newest_dead="no answer within 10 s")
    assert names(first) == [], "some are scored"
    first = replace(first, streams={**STREAMS, "scored": StreamStanding()})
    (finding,) = findings(first)
    assert finding.name == "dead-letters"
    assert "the newest: no answer within 10 s" in finding.why
    assert names(replace(first, counts={**first.counts, "train.trained": 8})) == []


def test_admission_that_stops_for_buried_groups_is_what_holds_a_run_up() -> None:
    stopped = replace(RUNNING, dead=5, dead_limit=5)
    (finding,) = findings(stopped)
    assert (finding.name, finding.holds) == ("admission-stopped", True)
    assert finding.what == "5 groups are buried in `dead`, and with 5 nothing new is admitted"
    assert "inspect dead replay --all" in finding.mend and "broker.dead_limit" in finding.mend
    assert names(replace(stopped, dead=2)) == names(replace(stopped, dead_limit=0)) == []
    (warning,) = findings(replace(stopped, dead=3, counts={**RUNNING.counts, "train.admitted": 400}))
    assert (warning.name, warning.holds) == ("dead-letters", False) and "with 5 nothing new is admitted" in warning.why
    assert names(replace(stopped, finished="x")) == [], "nothing is to be admitted any more"


def test_a_step_that_is_late_for_no_reason_says_where_the_groups_lie() -> None:
    slow = replace(RUNNING, steps=({"seconds": 4.0, "tokens": 1, "rollouts": 1},), step_age_s=61.0)
    (finding,) = findings(slow)
    assert finding.what == "7 of 16 open groups lie in `prompts` (oldest a/0/7)"
    assert finding.why == "rollout-0 (pid 6) says 'sampling'"
    assert findings(replace(slow, step_age_s=59.0)) == []
    assert who_holds(RUNNING).startswith("7 of 16 open groups lie in `prompts`")
    nothing = replace(RUNNING, streams={}, open=0, processes={})
    assert who_holds(nothing).startswith("the trainer waits for groups that cannot come")


def test_what_is_past_is_not_judged() -> None:
    assert findings(replace(RUNNING, live=False, unanswered="x")) == []
    assert findings(replace(with_processes(rollout_0=replace(ALL_WELL["rollout-0"], age_s=99)), finished="done")) == []


def test_the_screen_stays_a_screen_with_a_thousand_slots_of_which_many_are_in_trouble() -> None:
    slots = {
        f"slot-{n}": Slot(state="parked" if n % 3 else "serving", pool="rollout", wanted="rollout", why="x " * 200)
        for n in range(1000)
    }
    console = Console(file=io.StringIO(), width=120, force_terminal=True)
    console.print(screen(with_slots({"prompts": 10_000, "scored": 3}, **slots)))
    drawn = console.file.getvalue()  # type: ignore[attr-defined]
    assert len(drawn.splitlines()) <= 32
    for words in ("10,000", "334 serving, 666 parked", "look", "(and 665 more like it)"):
        assert words in drawn, drawn
