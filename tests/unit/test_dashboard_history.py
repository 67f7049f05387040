"""A run's history: what a moment says of slots and processes, and how the file stays small without losing a move."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from deploy.dashboard.history import EVERY_S, HistoryReader, HistoryWriter
from deploy.dashboard.moment import halved, moment_of
from deploy.dashboard.rollout_text import pieces
from deploy.records import records
from deploy.snapshot import Goal, Process, Slot, Snapshot


def moment(at: float, **facts: Any) -> dict[str, Any]:
    return {
        "at": at,
        "version": 1,
        "open": 2,
        "backlog": {},
        "lanes": {"slot-0": ["rollout", "serving", 0.5, 1]},
        **facts,
    }


def snapshot(**facts: Any) -> Snapshot:
    return Snapshot(run="demo", goal=Goal(steps=10, staleness=1), elapsed_s=1.0, **facts)


def test_a_moment_says_who_is_busy_who_loads_who_switches_and_who_is_gone() -> None:
    processes = {
        "slot-0": Process(role="rollout", pid=1, stage="sampling", busy=0.756, version=3),
        "feeder-0": Process(role="feeder", pid=2, stage="admitting", busy=0.0),
        "trainer-0": Process(role="trainer", pid=3, stage="loading the learner", busy=1.0),
        "reward-0": Process(role="reward", pid=4, stage="scoring", busy=1.0, age_s=60.0),
    }
    slots = {
        "slot-0": Slot(state="serving", pool="rollout", wanted="rollout"),
        "slot-1": Slot(state="draining", pool="rollout", wanted="judge"),
        "slot-2": Slot(state="moving", pool="judge", wanted="judge"),
        "slot-3": Slot(state="dead", pool="judge", wanted="judge"),
    }
    assert moment_of(snapshot(processes=processes, slots=slots), [], 5.0)["lanes"] == {
        "slot-0": ("rollout", "serving", 0.76, 3),
        "slot-1": ("rollout", "switching", None, -1),
        "slot-2": ("judge", "loading", None, -1),
        "slot-3": ("judge", "gone", None, -1),
        "feeder-0": ("feeder", "serving", 0.0, -1),
        "trainer-0": ("trainer", "loading", None, -1),
        "reward-0": ("reward", "gone", None, -1),
    }


def test_only_decisions_that_moved_something_are_kept() -> None:
    moved = {"at": 1.0, "moves": [{"slot": "s", "source": None, "target": "judge"}], "sentence": "judges lack"}
    stayed = {"at": 2.0, "moves": [], "sentence": "stay"}
    kept = moment_of(snapshot(), [moved, stayed], 5.0)["moves"]
    assert kept == [{"at": 1.0, "slots": [["s", "", "judge"]], "why": "judges lack"}]
    assert "moves" not in moment_of(snapshot(), [stayed], 5.0)


@given(st.lists(st.booleans(), max_size=40))
def test_thinning_halves_the_lines_and_keeps_every_move_and_the_newest(moves: list[bool]) -> None:
    all_of_it = [moment(float(at), **({"moves": [{"at": at}]} if moved else {})) for at, moved in enumerate(moves)]
    kept = halved(all_of_it)
    assert len(kept) == (len(moves) + 1) // 2
    assert [move["at"] for one in kept for move in one.get("moves", ())] == [
        at for at, moved in enumerate(moves) if moved
    ]
    assert kept[-1:] == all_of_it[-1:] or kept[-1]["at"] == all_of_it[-1]["at"]


def test_a_lane_that_went_on_has_the_mean_of_both_shares_and_one_that_changed_the_last() -> None:
    later = moment(2.0, lanes={"slot-0": ["rollout", "serving", 0.7, 1]})
    moved = moment(2.0, lanes={"slot-0": ["judge", "serving", 0.7, 1]})
    assert halved([moment(1.0), later])[0]["lanes"]["slot-0"][2] == 0.6
    assert halved([moment(1.0), moved])[0]["lanes"]["slot-0"] == ["judge", "serving", 0.7, 1]


def test_a_history_stays_within_its_lines_and_comes_half_as_often_then(tmp_path: Path) -> None:
    writer, reader, at = HistoryWriter(tmp_path, most=10), HistoryReader(tmp_path), 0.0
    told: list[dict[str, Any]] = []
    for _ in range(100):
        at += EVERY_S
        if writer.is_due(at):
            writer.append(moment(at))
            anew, new = reader.refresh()
            told = new if anew else told + new
    found = records(tmp_path / "history.jsonl")
    assert len(found) < 10
    assert found[-1]["at"] > 0.8 * at
    assert writer.every_s > EVERY_S
    assert told == found == reader.moments


def test_a_writer_goes_on_where_another_stopped(tmp_path: Path) -> None:
    HistoryWriter(tmp_path).append(moment(100.0))
    next_writer = HistoryWriter(tmp_path)
    assert not next_writer.is_due(101.0)
    assert next_writer.is_due(103.0)
    assert next_writer.is_due(50.0), "a clock that was set back must not stop the history"


@given(st.text(max_size=12))
def test_the_pieces_of_a_text_make_the_text_also_when_a_character_is_many_tokens(text: str) -> None:
    alphabet = {letter: place for place, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=alphabet, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore[assignment]
    tokenizer.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    ids = tokenizer.encode(text).ids
    found = pieces(ids, lambda some: tokenizer.decode(list(some), skip_special_tokens=False))
    assert len(found) == len(ids)
    assert "".join(found) == tokenizer.decode(ids)
