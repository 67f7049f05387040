"""What a trace calls the end of a stay is what groups are counted by, for every way a delivery can end."""

from __future__ import annotations

import pytest

from broker.entries import steps, traced
from broker.measures import SETTLED
from broker.messages import Delivery, Entry
from broker.outcomes import Bury, Forward, Outcome, Recycle, Release, Retire, fate_of
from broker.streams import ROLLOUTS
from tests.contract.broker_world import group

FATES: dict[str, Outcome] = {
    "forwarded": Forward(group=group("story/0/0")),
    "retired": Retire(reason="why"),
    "buried": Bury(reason="why"),
    "recycled": Recycle(reason="why"),
    "tried_again": Release(reason="why", failed=True),
    "given_back": Release(reason="why"),
}


@pytest.mark.parametrize("fate", FATES)
def test_a_trace_and_a_count_call_a_fate_the_same(fate: str) -> None:
    entry = Entry(group="story/0/0", kind="train", task="story", size=4, floor=0, last_version=3)
    delivery = Delivery(stream=ROLLOUTS, entry_id="1-0", entry=entry)
    assert fate_of(FATES[fate]) == fate
    [step] = steps(traced(delivery, "reward-0", FATES[fate]).entry.trace)
    assert (step.reader, step.what.partition(": ")[0]) == ("reward-0", fate.replace("_", " "))


def test_the_measure_of_settled_groups_names_every_fate() -> None:
    assert SETTLED.says.partition(": ")[2].split(", ") == list(FATES)
