"""Facts of a run and what is made of them: books, shares, the watchdog's clock, a line on the screen."""

from __future__ import annotations

import io
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from broker.standing import StreamStanding
from deploy.observer import keep
from deploy.progress import PlainDisplay, display_on, line
from deploy.run_check import load_run
from deploy.run_folder import launching, new_run_folder
from deploy.screen import screen
from deploy.snapshot import Goal, Process, Snapshot, books_of, busy_share, lives_with
from deploy.status import current_snapshot
from deploy.watchdog import Watch

STEP = {
    "version": 3,
    "seconds": 2.0,
    "tokens": 4000,
    "rollouts": 1000,
    "reward": 0.5,
    "staleness": {"mean": 0.75, "max": 1},
}

RUNNING = Snapshot(
    run="demo",
    goal=Goal(steps=400, staleness=1),
    elapsed_s=65.0,
    stage="training",
    version=3,
    steps=(STEP,),
    accuracy_start=0.4,
    accuracy=0.6,
    streams={
        "prompts": StreamStanding(backlog=12),
        "rollouts": StreamStanding(backlog=3),
        "scored": StreamStanding(backlog=60),
    },
    counts={"train.admitted": 100, "train.trained": 24, "train.retired.no_signal": 1, "train.open": 75},
    open=75,
    processes={
        "reward-0": Process(role="reward", pid=7, stage="scoring", busy=0.25, progress=5),
        "trainer-0": Process(role="trainer", pid=8, stage="training", busy=0.9),
    },
)


def test_the_books_are_what_was_counted() -> None:
    counts = {
        "train.admitted": 10,
        "train.trained": 4,
        "train.retired.no_signal": 2,
        "train.retired.late": 1,
        "train.buried": 1,
        "train.open": 2,
        "eval.admitted": 9,
    }
    assert books_of(counts, "train") == {"admitted": 10, "trained": 4, "retired": 3, "buried": 1, "open": 2}
    assert books_of({}, "eval")["open"] == 0


def test_a_line_tells_everything_that_is_known() -> None:
    shown = line(RUNNING)
    for words in (
        "1:05",
        "step 3/400",
        "reward 0.500",
        "accuracy 0.400 → 0.600",
        "staleness 0.75, most 1 (≤ 1)",
        "2,000 tokens/s",
        "500 completions/s",
    ):
        assert words in shown
    assert "backlog prompts 12 rollouts 3 scored 60" in shown
    assert "busy reward 25% trainer 90%" in shown


def test_a_line_about_a_run_that_has_not_begun_says_only_its_stage() -> None:
    assert (
        line(Snapshot(run="demo", goal=Goal(steps=4, staleness=1), elapsed_s=1.2, stage="warm start", detail="step 10"))
        == "0:01  warm start  step 10"
    )


def test_the_screen_shows_each_process_and_what_it_does() -> None:
    console = Console(file=io.StringIO(), width=100, force_terminal=True)
    console.print(screen(RUNNING))
    drawn = console.file.getvalue()  # type: ignore[attr-defined]
    for words in ("demo", "trainer-0", "scoring", "open 75"):
        assert words in drawn


def test_plain_lines_come_with_news_and_else_every_few_seconds() -> None:
    out = io.StringIO()
    display = PlainDisplay(Console(file=out))
    display.show(RUNNING)
    display.show(replace(RUNNING, elapsed_s=66.0))
    assert len(out.getvalue().splitlines()) == 1
    display.show(replace(RUNNING, elapsed_s=66.5, accuracy=0.7))
    display.show(replace(RUNNING, elapsed_s=71.5, accuracy=0.7))
    assert len(out.getvalue().splitlines()) == 3


def test_a_terminal_that_cannot_draw_over_what_stands_there_gets_lines() -> None:
    dumb = Console(file=io.StringIO(), force_terminal=True, _environ={"TERM": "dumb"})
    assert isinstance(display_on(dumb), PlainDisplay)
    able = display_on(Console(file=io.StringIO(), force_terminal=True, _environ={"TERM": "xterm"}))
    able.close()
    assert not isinstance(able, PlainDisplay)


def test_what_is_wrong_at_two_lines_in_a_row_is_told_once_until_it_is_over() -> None:
    out = io.StringIO()
    display = PlainDisplay(Console(file=out))
    dying = replace(RUNNING, dead=40, newest_dead="RuleFailed: rule mine: KeyError: 'gold'")
    told: list[int] = []
    for number, snapshot in enumerate([dying, dying, dying, RUNNING, dying, RUNNING, dying, dying]):
        display.show(replace(snapshot, elapsed_s=100.0 * number))
        told.append(out.getvalue().count("look  40 groups are buried"))
    assert told == [0, 1, 1, 1, 1, 1, 1, 2]
    assert "the newest: RuleFailed: rule mine: KeyError: 'gold'; `tidemill inspect dead`" in out.getvalue()


def test_only_groups_that_are_all_buried_are_a_reason_to_stop_and_a_batch_of_them() -> None:
    def with_buried(number: int, **counts: int) -> Snapshot:
        named = {f"train.{name}": value for name, value in counts.items()}
        return replace(RUNNING, groups=20, counts={**RUNNING.counts, "train.buried": number, **named})

    watch = Watch().after(with_buried(5), 1.0)
    watch = watch.after(with_buried(24), 2.0)
    assert watch.buried_in_a_row(with_buried(24)) == 0, "fewer than a batch"
    assert watch.buried_in_a_row(with_buried(25)) == 20
    assert watch.after(with_buried(90, trained=1000), 3.0).buried_in_a_row(with_buried(90, trained=1000)) == 0
    scored = replace(with_buried(90), streams={**RUNNING.streams, "scored": StreamStanding(backlog=61)})
    assert watch.after(scored, 3.0).buried_in_a_row(scored) == 0


def test_reports_alone_are_no_progress_for_the_watchdog() -> None:
    watch = Watch().after(RUNNING, 10.0)
    older = replace(
        RUNNING,
        elapsed_s=99.0,
        processes={name: replace(p, age_s=0.2, stage="idle") for name, p in RUNNING.processes.items()},
    )
    assert watch.after(older, 50.0).still_s(50.0) == 40.0
    for moved in (
        replace(RUNNING, version=4),
        replace(RUNNING, counts={**RUNNING.counts, "train.admitted": 101}),
        replace(RUNNING, streams={**RUNNING.streams, "scored": StreamStanding(backlog=61)}),
        replace(
            RUNNING, processes={**RUNNING.processes, "reward-0": replace(RUNNING.processes["reward-0"], progress=6)}
        ),
    ):
        assert watch.after(moved, 50.0).still_s(50.0) == 0.0


def test_work_counts_from_the_opening_and_over_all_lives() -> None:
    def beat(pid: int, busy: float, wait: float) -> dict[str, dict[str, object]]:
        return {"rollout-0": {"role": "rollout", "pid": pid, "busy_s": busy, "wait_s": wait}}

    lives = lives_with({}, beat(1, 5.0, 100.0))
    lives = lives_with(lives, beat(1, 8.0, 101.0))
    assert busy_share(lives.values()) == {"rollout": 0.75}
    lives = lives_with(lives_with(lives, beat(2, 0.0, 0.0)), beat(2, 1.0, 3.0))
    assert busy_share(lives.values()) == {"rollout": 0.5}


@given(st.lists(st.tuples(st.integers(1, 3), st.floats(0, 100), st.floats(0, 100))))
def test_shares_lie_between_nothing_and_everything(steps: list[tuple[int, float, float]]) -> None:
    totals: dict[int, tuple[float, float]] = {}
    lives = {}
    for pid, busy, wait in steps:
        before = totals.get(pid, (0.0, 0.0))
        totals[pid] = (before[0] + busy, before[1] + wait)
        lives = lives_with(lives, {"p": {"role": "r", "pid": pid, "busy_s": totals[pid][0], "wait_s": totals[pid][1]}})
    assert all(-1e-9 <= share <= 1 + 1e-9 for share in busy_share(lives.values()).values())


def test_a_run_without_a_server_is_as_it_was_last_seen_and_waits_where_a_launcher_lives(tmp_path: Path) -> None:
    settings = load_run("addition")
    folder = new_run_folder(settings, tmp_path, datetime.now(UTC))
    assert current_snapshot(folder, settings) is None
    keep(folder, asdict(RUNNING))
    seen = current_snapshot(folder, settings)
    assert seen is not None
    assert asdict(seen) == asdict(replace(RUNNING, live=False, stage="stopped", steps=[STEP], pools=[]))
    with launching(folder):
        waiting = current_snapshot(folder, settings)
    assert waiting is not None
    assert (waiting.stage, waiting.live, waiting.version) == ("waiting for the server", False, 3)
