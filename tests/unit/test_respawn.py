"""Who is started again: a pure judgement of exit codes and times."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.errors import Broken, Fenced, Misconfigured, Transient
from scheduler.respawn import LONGEST_PAUSE_S, Exit, Leave, Limits, Respawn, StopRun, decide_respawn

LIMITS = Limits(crashes=3, window_s=60)


def lives(*codes: int, lived_s: float = 1.0, progressed: bool = False) -> list[Exit]:
    return [Exit(code=code, at=float(i), lived_s=lived_s, progressed=progressed) for i, code in enumerate(codes)]


def test_a_killed_process_is_started_again_almost_at_once() -> None:
    decision = decide_respawn(lives(-9), 10.0, LIMITS)
    assert isinstance(decision, Respawn)
    assert decision.at == 10.1
    assert "killed by signal 9 (SIGKILL)" in decision.reason


def test_pauses_grow_up_to_a_limit() -> None:
    pauses = [decide_respawn(lives(*[Transient.exit_code] * n), 0.0, LIMITS) for n in range(1, 9)]
    assert [round(p.at, 1) for p in pauses if isinstance(p, Respawn)] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]


def test_misconfigured_and_broken_processes_stop_the_run() -> None:
    for code in (Misconfigured.exit_code, Broken.exit_code):
        decision = decide_respawn(lives(-9, code), 0.0, LIMITS)
        assert isinstance(decision, StopRun)
        assert decision.exit_code == code


def test_finished_and_fenced_processes_are_let_go() -> None:
    for code in (0, Fenced.exit_code):
        assert isinstance(decide_respawn(lives(code), 0.0, LIMITS), Leave)


def test_crashing_in_a_row_without_progress_stops_the_run() -> None:
    assert isinstance(decide_respawn(lives(1, -11), 0.0, LIMITS), Respawn)
    decision = decide_respawn(lives(1, -11, 1), 0.0, LIMITS)
    assert isinstance(decision, StopRun)
    assert "3 times in a row" in decision.reason


def test_a_life_with_progress_or_a_long_one_starts_the_count_anew() -> None:
    for good in (lives(-9, progressed=True), lives(-9, lived_s=61)):
        assert isinstance(decide_respawn([*lives(1, 1), *good, *lives(1, 1)], 0.0, LIMITS), Respawn)


def test_passing_faults_are_never_too_many() -> None:
    assert isinstance(decide_respawn(lives(*[Transient.exit_code] * 50), 0.0, LIMITS), Respawn)


@given(
    st.lists(
        st.builds(
            Exit, code=st.integers(-64, 255), at=st.just(0.0), lived_s=st.floats(0, 1e4), progressed=st.booleans()
        ),
        min_size=1,
    )
)
def test_every_history_has_an_answer_and_no_pause_is_too_long(exits: list[Exit]) -> None:
    decision = decide_respawn(exits, 5.0, LIMITS)
    assert decision.reason
    if isinstance(decision, Respawn):
        assert 5.0 < decision.at <= 5.0 + LONGEST_PAUSE_S
