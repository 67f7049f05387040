"""Siblings that finish in any order, and the spans of their versions."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given, strategies

from broker.messages import Group, Prompt
from producers.engines.siblings import Sibling, Siblings, spans_of

VERSIONS = strategies.lists(strategies.lists(strategies.integers(0, 3), min_size=1, max_size=6), min_size=1, max_size=5)


@given(VERSIONS)
def test_spans_cover_every_action_once_and_in_order(versions: list[list[int]]) -> None:
    offsets = np.cumsum([0, *map(len, versions)]).astype(np.int32)
    spans = spans_of(np.concatenate(versions).astype(np.int32), offsets).tolist()
    spread = [(sibling, place, version) for sibling, start, end, version in spans for place in range(start, end)]
    assert spread == [(s, place, version) for s, own in enumerate(versions) for place, version in enumerate(own)]
    assert all(a[0] != b[0] or a[3] != b[3] for a, b in pairwise(spans))


def test_siblings_keep_their_order_whatever_order_they_finish_in() -> None:
    prompt = Prompt(text="", actions=np.zeros(1, np.int32), size=3, seed=0)
    siblings = Siblings(Group(id="a/0/0", kind="train", prompt=prompt))
    for index in (2, 0, 1):
        assert not siblings.is_complete
        length = index + 1
        own = np.full(length, index, np.int32)
        siblings.finish(index, Sibling(own, own.astype(np.float32), np.zeros(length, np.int32), "length"))
    rollouts = siblings.rollouts(lambda actions: tuple("".join(map(str, each.tolist())) for each in actions))
    assert siblings.is_complete
    assert rollouts.texts == ("0", "11", "222")
    assert rollouts.offsets.tolist() == [0, 1, 3, 6]
    assert rollouts.actions.tolist() == [0, 1, 1, 2, 2, 2] and rollouts.mask.all()
