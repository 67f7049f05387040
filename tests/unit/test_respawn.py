"""Who is started again: a pure judgement of exit codes and times."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.errors import Broken, Fenced, Misconfigured, Transient, Unavailable
from scheduler.respawn import CRASHED, PASSING, Exit, Leave, Limits, Respawn, StopRun, decide_respawn

LIMITS = Limits(crashes=3, window_s=60)
PATIENT = Limits(crashes=99)


def lives(*codes: int, lived_s: float = 1.0, progressed: bool = False) -> list[Exit]:
    return [Exit(code=code, at=float(i), lived_s=lived_s, progressed=progressed) for i, code in enumerate(codes)]


def test_a_killed_process_is_started_again_almost_at_once() -> None:
    decision = decide_respawn(lives(-9), 10.0, LIMITS)
    assert isinstance(decision, Respawn)
    assert decision.at == 10.1
    assert "killed by signal 9 (SIGKILL)" in decision.reason


def pauses(code: int, lives_until: int) -> list[float]:
    decisions = [decide_respawn(lives(*[code] * n), 0.0, PATIENT) for n in range(1, lives_until)]
    return [round(one.at, 1) for one in decisions if isinstance(one, Respawn)]


def test_pauses_grow_up_to_a_limit_and_faster_for_what_takes_time_to_pass() -> None:
    assert pauses(-9, 9) == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert pauses(Transient.exit_code, 7) == [1.0, 4.0, 16.0, 60.0, 60.0, 60.0]


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


def test_a_passing_fault_that_does_not_pass_is_given_up_with_its_name() -> None:
    assert isinstance(decide_respawn(lives(75, 75), 0.0, LIMITS), Respawn)
    decision = decide_respawn(lives(75, 75, 75), 0.0, LIMITS)
    assert isinstance(decision, StopRun)
    assert decision.exit_code == Broken.exit_code
    assert decision.reason == "exited with code 75 (a passing fault), 3 times in a row without progress; giving up"


def test_a_passing_fault_after_a_long_load_counts_where_a_crash_would_not() -> None:
    assert isinstance(decide_respawn(lives(75, 75, 75, lived_s=120), 0.0, LIMITS), StopRun)
    assert isinstance(decide_respawn(lives(1, 1, 1, lived_s=120), 0.0, LIMITS), Respawn)
    assert isinstance(decide_respawn(lives(75, 75, 75, lived_s=601), 0.0, LIMITS), Respawn)


def test_one_unit_of_work_in_between_forgives_passing_faults() -> None:
    again = [*lives(75, 75), *lives(75, progressed=True), *lives(75, 75)]
    assert isinstance(decide_respawn(again, 0.0, LIMITS), Respawn)


def test_crashes_and_passing_faults_in_turn_are_given_up_too() -> None:
    assert isinstance(decide_respawn(lives(75, -9, 75), 0.0, LIMITS), StopRun)


def test_a_server_that_is_away_for_an_hour_is_waited_for() -> None:
    away = lives(*[Unavailable.exit_code] * 700)
    decision = decide_respawn(away, 0.0, LIMITS)
    assert isinstance(decision, Respawn)
    assert decision.at == 5.0
    assert "its server does not answer" in decision.reason


def test_an_absence_neither_counts_as_a_failure_nor_forgives_one() -> None:
    assert isinstance(decide_respawn([*lives(1, 1), *lives(69, 69, 69, lived_s=600)], 0.0, LIMITS), Respawn)
    assert isinstance(decide_respawn([*lives(1, 69, 1, 69), *lives(1)], 0.0, LIMITS), StopRun)


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
        longest = PASSING if exits[-1].code == Transient.exit_code else CRASHED
        assert 5.0 < decision.at <= 5.0 + longest.longest_s
