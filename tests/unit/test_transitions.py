"""Verbs as pure functions: what a run becomes, and that a verb that refuses leaves the very same record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from broker import entries, run_record, transitions
from broker import feeder_transitions as feeding
from broker import trainer_transitions as training
from broker.codec import encode_prompt, encode_rollouts, encode_scores, size_of
from broker.contract import Announcement, Books, LedgerLine, OpenGroup
from broker.errors import Broken, Fenced, Reset
from broker.feeder_transitions import Offer
from broker.messages import Delivery, Entry, Group, Kind, Prompt, Rollouts, Scores
from broker.run_record import Caller, Limits, RunRecord
from broker.streams import PROMPTS, ROLLOUTS, SCORED

LIMITS = Limits(cap=4, groups=2, staleness=1, eval_cap=2)
TRAINER = Caller(server="first", incarnation=0, epoch=3)


def version(number: int, epoch: int = 3) -> Announcement:
    return Announcement(version=number, epoch=epoch, path=f"{number}-{epoch}", digest="d")


def group(name: str, kind: Kind = "train") -> Group:
    return Group(id=name, kind=kind, prompt=Prompt(text=name, actions=np.zeros(1, np.int32), size=1, seed=0))


def offers(*names: str, kind: Kind = "train") -> list[Offer]:
    return [Offer(group=group(name, kind), fields=encode_prompt(group(name, kind))) for name in names]


def rolled(asked: Group) -> Group:
    rollouts = Rollouts(
        texts=("a",),
        actions=np.zeros(1, np.int32),
        offsets=np.array([0, 1], np.int32),
        logprobs=np.zeros(1, np.float32),
        mask=np.ones(1, np.uint8),
        spans=np.array([(0, 0, 1, 0)], np.int32),
        finishes=("stop",),
    )
    return asked.with_rollouts(rollouts).with_scores(Scores(rewards=np.ones(1, np.float32)))


def opened(run: RunRecord | None = None, caller: Caller = TRAINER) -> tuple[RunRecord, Caller]:
    """A run at version 0, and its trainer."""
    claimed = training.claim(run or RunRecord(), caller.epoch)
    run = training.open_run(claimed, caller, LIMITS, version(0, caller.epoch))
    return run, replace(caller, incarnation=run.incarnation)


def with_scored(*names: str) -> tuple[RunRecord, Caller, list[Delivery]]:
    """A run whose groups are all in the trainer's hands."""
    run, caller = opened()
    run, _ = feeding.admit(run, caller, 0, "", offers(*names))
    run, asked = transitions.read(run, caller, PROMPTS, "w", 10)
    for each in asked:
        run = advance(run, caller, each)
    run, answered = transitions.read(run, caller, ROLLOUTS, "r", 10)
    for each in answered:
        run = advance(run, caller, each)
    run, scored = transitions.read(run, caller, SCORED, "t", 10)
    return run, caller, scored


def advance(run: RunRecord, caller: Caller, delivery: Delivery) -> RunRecord:
    whole = rolled(group(delivery.entry.group, delivery.entry.kind))
    assert whole.rollouts is not None and whole.scores is not None
    fields = encode_rollouts(whole.rollouts) if delivery.stream == PROMPTS else encode_scores(whole.scores)
    entry = entries.forwarded(delivery.entry, whole, added=size_of(fields))
    run, verdict = transitions.forward(run, caller, delivery, entry, fields)
    assert verdict == "done"
    return run


def line(number: int, *groups: str, epoch: int = 3, parent_epoch: int = 3) -> LedgerLine:
    return LedgerLine(version=number, epoch=epoch, parent_epoch=parent_epoch, digest="d", groups=groups)


# ---- refusals leave the very same record


@pytest.mark.parametrize(
    "verb",
    [
        lambda run, caller, held: transitions.retire(run, caller, held, "late", {}),
        lambda run, caller, held: transitions.bury(run, caller, "t", held, "late"),
        lambda run, caller, held: transitions.release(run, caller, "t", held, failed=True),
        lambda run, caller, held: transitions.recycle(run, caller, "t", held),
        lambda run, caller, held: transitions.forward(
            run, caller, replace(held, stream=ROLLOUTS), held.entry, {b"r0.reward": b"1"}
        ),
    ],
)
def test_a_superseded_verb_returns_the_record_it_was_given(
    verb: Callable[[RunRecord, Caller, Delivery], tuple[RunRecord, str]],
) -> None:
    run, caller, [held] = with_scored("a")
    run, _ = transitions.retire(run, caller, held, "stale", {})
    after, verdict = verb(run, caller, held)
    assert (after is run, verdict) == (True, "superseded")


def test_a_verb_never_changes_the_record_it_was_given() -> None:
    run, caller, scored = with_scored("a", "b")
    before = run_record.books(run), run_record.backlog(run), dict(run.bodies), run.ledger
    training.commit(run, caller, line(1, "a"), version(1), scored[:1])
    transitions.recycle(run, caller, "t", scored[1])
    training.restore(run, caller, LIMITS, run_record.books(run), [], version(0))
    assert (run_record.books(run), run_record.backlog(run), dict(run.bodies), run.ledger) == before


@pytest.mark.parametrize(
    "caller",
    [
        replace(TRAINER, incarnation=0),
        replace(TRAINER, incarnation=1),
        replace(TRAINER, server="second", incarnation=3_000_001),
    ],
)
def test_who_is_not_in_this_opening_hears_reset(caller: Caller) -> None:
    run, _ = opened()
    with pytest.raises(Reset):
        feeding.admit(run, caller, 0, "", offers("a"))
    with pytest.raises(Reset):
        training.prepare(run, caller, [])


def test_an_older_trainer_hears_that_it_is_fenced() -> None:
    run, caller, scored = with_scored("a")
    run = training.claim(run, 4)
    for verb in (
        lambda: training.commit(run, caller, line(1, "a"), version(1), scored),
        lambda: transitions.retire(run, caller, scored[0], "stale", {}),
        lambda: transitions.blame(run, caller, "t", scored, 1),
        lambda: training.open_run(run, caller, LIMITS, version(0)),
    ):
        with pytest.raises(Fenced):
            verb()


# ---- openings


def test_no_two_openings_share_a_number_whoever_opens_and_whatever_was_lost() -> None:
    first, trainer = opened()
    again = training.open_run(first, trainer, LIMITS, version(0))
    elsewhere = replace(trainer, server="second", incarnation=again.incarnation)
    restarted = training.open_run(again, elsewhere, LIMITS, version(0))
    remembers = replace(trainer, incarnation=restarted.incarnation, epoch=4)
    flushed, _ = opened(caller=remembers)
    newcomer, _ = opened(caller=replace(TRAINER, epoch=5))
    zombie, _ = opened(caller=replace(TRAINER, epoch=2))
    numbers = [each.incarnation for each in (first, again, restarted, flushed, newcomer, zombie)]
    assert len(set(numbers)) == len(numbers)


def test_a_restore_keeps_what_evaluations_measure_and_renews_what_is_trained() -> None:
    run, caller = opened()
    kept = {
        "a": OpenGroup(stream=SCORED, entry_id="7-0", kind="train", floor=1, last_version=2),
        "eval/3/0": OpenGroup(stream=PROMPTS, entry_id="8-0", kind="eval", floor=3, last_version=3),
    }
    books = Books(tick=90, cursor=5, cursor_value="c", open=kept, counts={"train.admitted": 5}, exhausted=True)
    run = training.restore(run, caller, LIMITS, books, [line(9, "x")], version(9))
    caller = replace(caller, incarnation=run.incarnation)
    assert {name: (each.stream, each.floor, each.last_version) for name, each in run.open.items()} == {
        "a": ("", 9, 10),
        "eval/3/0": ("", 3, 3),
    }
    assert (run.tick, run.cursor, run.exhausted) == (91, 5, True)
    run, count = feeding.readmit(run, caller, [*offers("a"), *offers("eval/3/0", kind="eval")])
    assert (count, run_record.missing(run)) == (2, [])
    found = run_record.live_entries(run, ["eval/3/0", "a"])
    assert [(each.stream, each.entry.floor, each.entry.last_version) for each in found] == [
        (PROMPTS, 3, 3),
        (PROMPTS, 9, 10),
    ]


def test_an_evaluation_asked_anew_counts_the_groups_a_restore_left_open() -> None:
    run, caller = opened()
    run = training.want_evaluation(run, caller, 0, 2, 60)
    run, _ = feeding.admit_eval(run, caller, 0, 0, offers("eval/0/0", kind="eval"))
    run = training.restore(run, caller, LIMITS, run_record.books(run), [], version(0))
    caller = replace(caller, incarnation=run.incarnation)
    run = training.want_evaluation(run, caller, 0, 2, 60)
    run, admission = feeding.admit_eval(run, caller, 0, 0, offers("eval/0/0", "eval/0/1", kind="eval"))
    assert (admission.cursor, admission.admitted, run.counts["eval.admitted"]) == (1, 1, 1), "no room for more"
    run, _ = feeding.readmit(run, caller, offers("eval/0/0", kind="eval"))
    run, admission = feeding.admit_eval(run, caller, 0, 1, offers("eval/0/1", kind="eval"))
    assert (admission.cursor, run.counts["eval.admitted"], len(run.open)) == (2, 2, 2)


# ---- admission


def test_two_prompts_with_one_id_are_refused_before_either_enters() -> None:
    run, caller = opened()
    run, _ = feeding.admit(run, caller, 0, "", offers("a"))
    for offered in (offers("b", "a"), offers("b", "b")):
        with pytest.raises(Broken, match="own id"):
            feeding.admit(run, caller, 1, "", offered)


def test_an_evaluation_nobody_asked_for_is_not_admitted() -> None:
    run, caller = opened()
    after, admission = feeding.admit_eval(run, caller, 7, 0, offers("eval/7/0", kind="eval"))
    assert (after is run, admission.admitted, admission.cursor) == (True, 0, 0)


# ---- settling


def test_a_training_group_adds_to_no_evaluation() -> None:
    run, caller, [held] = with_scored("a")
    run, _ = transitions.retire(run, caller, held, "stale", {"n": 1, "reward": 1})
    assert run.evaluations == {}


def test_a_recycled_evaluation_still_measures_its_version() -> None:
    run, caller = opened()
    run = training.want_evaluation(run, caller, 0, 1, 60)
    run, _ = feeding.admit_eval(run, caller, 0, 0, offers("eval/0/0", kind="eval"))
    run = replace(run, live=version(5))
    run, [held] = transitions.read(run, caller, PROMPTS, "w", 1)
    run, _ = transitions.recycle(run, caller, "w", held)
    run, [again] = transitions.read(run, caller, PROMPTS, "w", 1)
    assert (again.entry.floor, again.entry.last_version) == (0, 0)


def test_the_size_of_a_recycled_body_is_that_of_its_prompt() -> None:
    run, caller, [held] = with_scored("a")
    run, _ = transitions.recycle(run, caller, "t", held)
    run, [again] = transitions.read(run, caller, PROMPTS, "w", 1)
    assert run.bodies["a"] == encode_prompt(group("a"))
    assert again.entry.bytes == size_of(encode_prompt(group("a"))) < held.entry.bytes


def test_nothing_follows_the_last_stage() -> None:
    run, caller, [held] = with_scored("a")
    with pytest.raises(Broken, match="nothing follows"):
        transitions.forward(run, caller, held, held.entry, {})


def test_a_dead_group_keeps_its_body_and_why_it_died() -> None:
    run, caller, [held] = with_scored("a")
    run, _ = transitions.bury(run, caller, "t", held, "no such tool")
    [dead] = run.dead
    assert (dead.entry.group, dead.reason, b"prompt" in run.bodies["a"]) == ("a", "no such tool", True)


# ---- commit


@pytest.mark.parametrize(
    ("committed", "announced"),
    [
        (line(1, "a", "b"), version(1)),
        (line(1, "b"), version(1)),
        (line(1, "a"), version(2)),
        (line(1, "a"), version(1, 9)),
        (line(2, "a"), version(2)),
        (line(1, "a", parent_epoch=2), version(1)),
    ],
)
def test_a_line_that_does_not_fit_its_batch_or_its_head_is_refused(
    committed: LedgerLine, announced: Announcement
) -> None:
    run, caller, scored = with_scored("a", "b")
    with pytest.raises(Broken):
        training.commit(run, caller, committed, announced, scored[:1])


def test_a_batch_may_not_hold_one_group_twice() -> None:
    run, caller, [held] = with_scored("a")
    with pytest.raises(Broken):
        training.commit(run, caller, line(1, "a"), version(1), [held, held])


def test_a_version_announced_again_is_the_parent_of_the_next_one() -> None:
    run, caller, scored = with_scored("a", "b")
    run = training.commit(run, caller, line(1, "a"), version(1), scored[:1])
    run = training.claim(run, 4)
    caller = replace(caller, epoch=4)
    run = training.announce(run, caller, version(1, 4))
    run = training.commit(run, caller, line(2, "b", epoch=4, parent_epoch=4), version(2, 4), scored[1:])
    assert [(each.version, each.epoch) for each in run.ledger] == [(1, 3), (2, 4)]


@pytest.mark.parametrize("announced", [version(2), version(0), version(1, 2)])
def test_only_the_live_version_is_announced_again_and_never_under_an_older_epoch(announced: Announcement) -> None:
    run, caller, scored = with_scored("a")
    run = training.commit(run, caller, line(1, "a"), version(1), scored)
    with pytest.raises(Broken):
        training.announce(run, caller, announced)


# ---- what the next entry says


ENTRY = Entry(group="a", kind="train", task="t", size=1, floor=2, last_version=3, attempt=1, alone=True, bytes=100)


def test_getting_past_a_stage_clears_suspicion_and_keeps_the_count() -> None:
    passed = entries.forwarded(ENTRY, rolled(group("a")), added=50)
    assert (passed.alone, passed.attempt, passed.bytes, passed.tokens, passed.newest_version) == (False, 1, 150, 1, 0)


def test_giving_back_changes_nothing_but_the_count_of_failures() -> None:
    assert entries.released(ENTRY, failed=False) == ENTRY
    assert entries.released(ENTRY, failed=True) == replace(ENTRY, attempt=2)


def test_a_recycled_entry_forgets_what_was_generated() -> None:
    full = replace(ENTRY, oldest_version=2, newest_version=3, reward=1.0, tokens=9)
    again = entries.recycled(full, floor=7, last_version=8, size=10)
    assert again == replace(ENTRY, floor=7, last_version=8, alone=False, bytes=10)
