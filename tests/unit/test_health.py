"""Health is progress: what reports and finishes nothing of what it holds is not well."""

from __future__ import annotations

from typing import Any

from broker.reports import SILENT_S
from deploy.health import STILL_S, judged


def facts(**said: Any) -> dict[str, Any]:
    return {"age_s": 0.5, "stage": "sampling", "moves": [7, 1], "holds": True, **said}


def test_who_reports_and_finishes_work_is_well() -> None:
    _, memory = judged(facts(), {}, now=0)
    wrong, _ = judged(facts(moves=[7, 2]), memory, now=10 * STILL_S)
    assert wrong == ""


def test_who_holds_work_and_finishes_none_of_it_is_not_however_often_it_reports() -> None:
    _, memory = judged(facts(), {}, now=0)
    for now in range(0, int(STILL_S), 20):
        wrong, memory = judged(facts(), memory, now)
        assert wrong == ""
    wrong, _ = judged(facts(), memory, STILL_S + 1)
    assert wrong == "has finished nothing for 121 s, says 'sampling'"


def test_who_has_nothing_to_do_is_well_for_as_long_as_that_lasts() -> None:
    _, memory = judged(facts(holds=False), {}, now=0)
    wrong, memory = judged(facts(holds=False), memory, now=10 * STILL_S)
    assert wrong == ""
    wrong, _ = judged(facts(), memory, now=10 * STILL_S + 1)
    assert wrong == "", "what it holds now it has held for a second"


def test_who_is_silent_or_says_that_something_is_wrong_is_not_well() -> None:
    assert judged(facts(age_s=SILENT_S + 1), {}, now=0)[0].startswith("has not reported for 11 s")
    assert judged(facts(wrong="is parked: no module"), {}, now=0)[0] == "is parked: no module"
