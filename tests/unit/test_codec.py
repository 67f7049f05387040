"""Whatever is sent is read back the same, a person can read it too, and what is damaged is refused by name."""

from __future__ import annotations

import pickle
import string
from dataclasses import fields, is_dataclass
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from broker.codec import (
    decode_entry,
    decode_group,
    decode_group_bytes,
    encode_added,
    encode_entry,
    encode_group,
    encode_prompt,
    encode_rollouts,
    encode_scores,
    prompt_fields,
    size_of,
)
from broker.errors import Poison
from broker.messages import Entry, Group, Prompt, Rollouts, Scores

# ---- what may be sent

plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
texts = st.text(st.characters())
"""Any characters, halves of surrogate pairs included."""
ids = st.from_regex(r"[a-z_-][a-z0-9_.-]{0,9}(/[0-9]{1,4}){0,2}", fullmatch=True)
real32 = st.floats(width=32, allow_nan=False, allow_infinity=False)


def actions(length: int, width: int) -> st.SearchStrategy[Any]:
    """Token ids, or vectors of `width` numbers when that is not 0."""
    if width:
        return arrays(np.float32, (length, width), elements=real32)
    return arrays(np.int32, length, elements=st.integers(-(2**31), 2**31 - 1))


@st.composite
def prompts(draw: st.DrawFn, size: int, width: int) -> Prompt:
    return Prompt(
        text=draw(texts),
        actions=draw(actions(draw(st.integers(0, 5)), width)),
        size=size,
        seed=draw(st.integers(0, 2**64)),
        temperature=draw(st.floats(0, 10)),
        max_actions=draw(st.integers(1, 10**6)),
        stop=tuple(draw(st.lists(st.integers(0, 10**6), max_size=3))),
        task=draw(texts),
        answer=draw(texts),
        meta=draw(st.dictionaries(st.text(), plain, max_size=3)),
    )


@st.composite
def sampled(draw: st.DrawFn, size: int, width: int) -> Rollouts:
    lengths = draw(st.lists(st.integers(0, 4), min_size=size, max_size=size))
    count = sum(lengths)
    return Rollouts(
        texts=tuple(draw(st.lists(texts, min_size=size, max_size=size))),
        actions=draw(actions(count, width)),
        offsets=np.cumsum([0, *lengths], dtype=np.int32),
        logprobs=draw(arrays(np.float32, count, elements=real32)),
        mask=draw(arrays(np.uint8, count, elements=st.integers(0, 1))),
        spans=np.array([(g, 0, n, draw(st.integers(0, 2**31 - 1))) for g, n in enumerate(lengths)], np.int32),
        finishes=tuple(draw(st.lists(st.sampled_from(["stop", "length"]), min_size=size, max_size=size))),
    )


@st.composite
def judged(draw: st.DrawFn, size: int) -> Scores:
    numbers = arrays(np.float32, size, elements=real32)
    names = st.text(string.ascii_letters + "._:é", min_size=1)
    return Scores(rewards=draw(numbers), parts=draw(st.dictionaries(names, numbers, max_size=2)))


@st.composite
def groups(draw: st.DrawFn) -> Group:
    size, width = draw(st.integers(1, 3)), draw(st.sampled_from([0, 0, 1, 3]))
    stage = draw(st.integers(0, 2))
    return Group(
        id=draw(ids),
        kind=draw(st.sampled_from(["train", "eval"])),
        prompt=draw(prompts(size, width)),
        rollouts=draw(sampled(size, width)) if stage else None,
        scores=draw(judged(size)) if stage > 1 else None,
    )


entries = st.builds(
    Entry,
    group=ids,
    kind=st.sampled_from(["train", "eval"]),
    task=texts,
    size=st.integers(1, 1000),
    floor=st.integers(0, 10**6),
    last_version=st.integers(0, 10**6),
    attempt=st.integers(0, 9),
    alone=st.booleans(),
    reward=st.none() | st.floats(allow_nan=False, allow_infinity=False),
    tokens=st.integers(0, 10**9),
    bytes=st.integers(0, 10**9),
    trace=texts,
)


def same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    if is_dataclass(one):
        return all(same(getattr(one, each.name), getattr(other, each.name)) for each in fields(one))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return one == other


# ---- there and back


@given(groups())
def test_a_group_is_read_back_as_it_was_written(group: Group) -> None:
    assert same(decode_group_bytes(encode_group(group)), group)


@given(groups())
def test_a_body_grows_by_the_fields_of_each_stage_and_none_is_written_twice(group: Group) -> None:
    parts = [encode_prompt(group)]
    if group.rollouts is not None:
        parts.append(encode_rollouts(group.rollouts))
    if group.scores is not None:
        parts.append(encode_scores(group.scores))
    body = {name: value for part in parts for name, value in part.items()}
    assert len(body) == sum(map(len, parts))
    assert size_of(body) == sum(map(size_of, parts))
    assert same(decode_group(group.id, group.kind, body), group)
    assert prompt_fields(body) == parts[0]


@given(entries)
def test_an_entry_is_read_back_as_it_was_written(entry: Entry) -> None:
    assert decode_entry(encode_entry(entry)) == entry


def test_versions_of_an_entry_are_read_back() -> None:
    entry = Entry(
        group="a/0/1", kind="train", task="a", size=1, floor=0, last_version=1, oldest_version=0, newest_version=3
    )
    assert decode_entry(encode_entry(entry)) == entry


# ---- what a person sees


def example() -> Group:
    prompt = Prompt(
        text="12+30=",
        actions=np.array([1, 2], np.int32),
        size=2,
        seed=9,
        max_actions=4,
        stop=(0, 3),
        task="addition",
        answer="42",
        meta={"digits": 2},
    )
    rollouts = Rollouts(
        texts=("42", "4"),
        actions=np.array([7, 8, 9], np.int32),
        offsets=np.array([0, 2, 3], np.int32),
        logprobs=np.array([-0.5, -0.25, -1], np.float32),
        mask=np.ones(3, np.uint8),
        spans=np.array([(0, 0, 2, 5), (1, 0, 1, 5)], np.int32),
        finishes=("stop", "length"),
    )
    rewards = np.array([1, 0.1], np.float32)
    scores = Scores(rewards=rewards, parts={"exact_match": rewards})
    return Group(id="addition/0/7", kind="train", prompt=prompt, rollouts=rollouts, scores=scores)


def body(group: Group) -> dict[bytes, bytes]:
    assert group.rollouts is not None and group.scores is not None
    return encode_prompt(group) | encode_rollouts(group.rollouts) | encode_scores(group.scores)


def test_a_person_reads_prompt_answers_and_rewards_as_text() -> None:
    seen = body(example())
    expected = {
        "prompt": "12+30=",
        "answer": "42",
        "size": "2",
        "seed": "9",
        "temperature": "1.0",
        "max_actions": "4",
        "stop": "0 3",
        "task": "addition",
        "r0.text": "42",
        "r1.text": "4",
        "r0.finish": "stop",
        "r1.finish": "length",
        "r0.reward": "1",
        "r1.reward": "0.1",
        "r1.part.exact_match": "0.1",
    }
    assert {name: seen[name.encode()].decode() for name in expected} == expected


def test_each_tensor_is_one_field_named_by_dtype_and_shape() -> None:
    names = {name for name in body(example()) if b":" in name}
    assert names == {
        b"prompt.actions:i4",
        b"actions:i4",
        b"offsets:i4",
        b"logprobs:f4",
        b"mask:u1",
        b"spans:i4:2x4",
        b"rewards:f4",
        b"part.exact_match:f4",
    }
    assert body(example())[b"actions:i4"] == b"\x07\0\0\0\x08\0\0\0\x09\0\0\0", "little-endian"


def test_vectors_carry_their_shape_in_the_name() -> None:
    group = example()
    assert group.rollouts is not None
    vectors = Rollouts(
        **{each.name: getattr(group.rollouts, each.name) for each in fields(Rollouts) if each.name != "actions"},
        actions=np.zeros((3, 12), np.float32),
    )
    assert b"actions:f4:3x12" in encode_rollouts(vectors)


def test_an_entry_stays_short_text() -> None:
    entry = Entry(
        group="a-source-with-a-long-name/12/123456",
        kind="train",
        task="a-source-with-a-long-name",
        size=64,
        floor=123456,
        last_version=123460,
        attempt=2,
        alone=True,
        oldest_version=123456,
        newest_version=123457,
        reward=-0.12345678901234567,
        tokens=1234567,
        bytes=12345678,
        trace="0" * 55,
    )
    seen = encode_entry(entry)
    assert size_of(seen) < 1024
    assert {name.decode() for name in seen} == {each.name for each in fields(Entry)} | {"schema"}
    assert all(value.decode().isprintable() for value in seen.values())


def test_reading_copies_nothing() -> None:
    packed = body(example())
    group = decode_group("addition/0/7", "train", packed)
    assert group.rollouts is not None
    assert not group.rollouts.logprobs.flags.writeable
    assert np.shares_memory(group.rollouts.logprobs, np.frombuffer(packed[b"logprobs:f4"], np.uint8))


# ---- what is refused


def damaged(change: dict[bytes, bytes | None]) -> dict[bytes, bytes]:
    changed = {**body(example()), **change}
    return {name: value for name, value in changed.items() if value is not None}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({b"actions:i4": None, b"actions:i8": b"\0" * 24}, "i8"),
        ({b"logprobs:f4": None, b"logprobs:f2": b"\0" * 6}, "f2"),
        ({b"logprobs:f4": b"\0" * 11}, "11 bytes"),
        ({b"spans:i4:2x4": b"\0" * 28}, "28 bytes"),
        ({b"spans:i4:2x4": None, b"spans:i4:2xy": b"\0" * 32}, "2xy"),
        ({b"spans:i4:2x4": None, b"spans:i4": b"\0" * 32}, "axes"),
        ({b"actions:i4": None, b"actions:i4:1x1x3": b"\0" * 12}, "axes"),
        ({b"mask:u1": None}, "mask"),
        ({b"rewards:f4": None}, "rewards"),
        ({b"r1.text": None}, "r1.text"),
        ({b"prompt": None}, "prompt"),
        ({b"prompt": b"\xff\xfe"}, "prompt"),
        ({b"size": b"two"}, "two"),
        ({b"stop": b"0 x"}, "holds b'x'"),
        ({b"temperature": b"warm"}, "warm"),
        ({b"body": b"\x81\xa1"}, "MessagePack"),
        ({b"body": b"\x07"}, "not a map"),
    ],
)
def test_a_damaged_body_is_refused_by_the_field_that_is_wrong(change: dict[bytes, bytes | None], named: str) -> None:
    with pytest.raises(Poison, match=named):
        decode_group("addition/0/7", "train", damaged(change))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({b"schema": b"group/2"}, "group/2"),
        ({b"schema": None}, "schema"),
        ({b"kind": b"trian"}, "trian"),
        ({b"floor": b""}, "floor"),
        ({b"group": None}, "group"),
    ],
)
def test_a_damaged_entry_is_refused_by_the_field_that_is_wrong(change: dict[bytes, bytes | None], named: str) -> None:
    entry = Entry(group="a/0/1", kind="train", task="a", size=1, floor=0, last_version=1)
    changed = {name: value for name, value in {**encode_entry(entry), **change}.items() if value is not None}
    with pytest.raises(Poison, match=named):
        decode_entry(changed)


def test_an_archive_of_another_schema_is_refused() -> None:
    changed = {**msgpack.unpackb(encode_group(example())), b"schema": b"group/0"}
    packed = msgpack.packb(changed)
    assert packed
    with pytest.raises(Poison, match="group/0"):
        decode_group_bytes(packed)


def test_a_pickle_is_never_opened() -> None:
    with pytest.raises(Poison):
        decode_group_bytes(pickle.dumps({"a": 1}))


def changed_rollouts(**change: Any) -> Rollouts:
    group = example()
    assert group.rollouts is not None
    return Rollouts(**({each.name: getattr(group.rollouts, each.name) for each in fields(Rollouts)} | change))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"logprobs": np.zeros(2, np.float32)}, "logprobs"),
        ({"mask": np.zeros(4, np.uint8)}, "mask"),
        ({"offsets": np.array([0, 2], np.int32)}, "offsets"),
        ({"offsets": np.array([0, 2, 4], np.int32)}, "offsets"),
        ({"finishes": ("stop",)}, "finishes"),
        ({"actions": np.array([7, 8, 9], np.int64)}, "int64"),
        ({"logprobs": np.zeros(3, np.float64)}, "float64"),
    ],
)
def test_rollouts_whose_parts_do_not_fit_are_refused_before_they_travel(change: dict[str, Any], named: str) -> None:
    with pytest.raises(Poison, match=named):
        encode_rollouts(changed_rollouts(**change))


def test_a_reward_part_of_another_length_is_refused_before_it_travels() -> None:
    with pytest.raises(Poison, match="length"):
        encode_scores(Scores(rewards=np.zeros(2, np.float32), parts={"length": np.zeros(3, np.float32)}))


def test_meta_that_is_not_plain_is_refused_before_it_travels() -> None:
    prompt = Prompt(text="", actions=np.zeros(0, np.int32), size=1, seed=0, meta={"file": object()})
    with pytest.raises(Poison, match=r"plain|text, numbers"):
        encode_prompt(Group(id="a", kind="train", prompt=prompt))


@pytest.mark.parametrize("stream", ["prompts", "rollouts", "scored"])
def test_a_group_that_comes_back_without_its_part_is_refused(stream: str) -> None:
    group = Group(id="a/0/1", kind="train", prompt=example().prompt)
    with pytest.raises(Poison, match="a/0/1"):
        encode_added(stream, group)
