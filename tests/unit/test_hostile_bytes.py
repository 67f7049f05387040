"""Bytes of a stranger: whatever stands in an entry, a body or an archive, reading it answers a sound value or Poison.

By day a few hundred tries of each; by night many more.
"""

from __future__ import annotations

import pickle
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.codec import decode_entry, decode_group, decode_group_bytes, encode_entry, encode_group
from broker.entries import forwarded
from broker.errors import Poison
from broker.messages import Entry, Group
from broker.redis_forms import entry_args
from tests.unit.test_codec import body, example

ROOT = Path(__file__).parents[2]
ENTRY = Entry(group="a/0/1", kind="train", task="a", size=2, floor=0, last_version=1)

junk = st.one_of(
    st.binary(max_size=40),
    st.sampled_from(
        [b"nan", b"inf", b"-1", b"1e400", b"9" * 4000, b"\xff\xfe", b"\0", "٣".encode(), b"1_0", b" 7", b"0x10"]
    ),
    st.integers(-(2**70), 2**70).map(lambda number: b"%d" % number),
    st.lists(st.sampled_from([0.0, -1.0, float("nan"), float("inf"), 1e38]), max_size=4).map(
        lambda row: np.asarray(row, "<f4").tobytes()
    ),
    st.lists(st.integers(-(2**31), 2**31 - 1), max_size=9).map(lambda row: np.asarray(row, "<i4").tobytes()),
    st.just(pickle.dumps({"a": 1})),
)
"""Values of fields."""

names = st.one_of(
    st.sampled_from(sorted(body(example()))),
    st.sampled_from(sorted(encode_entry(ENTRY))),
    st.tuples(
        st.sampled_from([b"actions", b"offsets", b"logprobs", b"mask", b"spans", b"rewards", b"part.x", b"part.\xff"]),
        st.sampled_from([b":i4", b":f4", b":u1", b":i8", b":O", b":\xff", b""]),
        st.sampled_from(
            [b"", b":2x4", b":0x99999999999", b":-1x4", b":9999999999x9999999999", b":0x9999999999x9999999999"]
        ),
    ).map(b"".join),
    st.binary(max_size=20),
)

changes = st.dictionaries(names, st.none() | junk, max_size=5)


def changed(fields: dict[bytes, bytes], change: dict[bytes, bytes | None]) -> dict[bytes, bytes]:
    return {name: value for name, value in {**fields, **change}.items() if value is not None}


def sound_or_poison(read: Callable[..., Any], *arguments: Any) -> Any:
    """What is read, or None; any other error fails the test, and a message too long for a log."""
    try:
        return read(*arguments)
    except Poison as refused:
        if len(str(refused)) >= 2000:
            raise
        return None


def goes_on(group: Group) -> None:
    """A group that was let in passes every stage's own steps."""
    assert all(np.isfinite(each).all() for each in numbers(group))
    entry_args(forwarded(ENTRY, group, added=1))
    if group.rollouts is not None:
        taken = [group.rollouts.actions[group.rollouts.sibling(index)] for index in range(group.prompt.size)]
        assert sum(map(len, taken)) == len(group.rollouts.actions)
    assert decode_group_bytes(encode_group(group)).id == group.id


def numbers(group: Group) -> list[Any]:
    rollouts = [group.rollouts.logprobs, group.rollouts.actions] if group.rollouts else []
    scores = [group.scores.rewards, *group.scores.parts.values()] if group.scores else []
    return [group.prompt.actions, *rollouts, *scores]


def read_body(change: dict[bytes, bytes | None]) -> None:
    group = sound_or_poison(decode_group, "a/0/1", "train", changed(body(example()), change))
    if group is not None:
        goes_on(group)


def read_entry(change: dict[bytes, bytes | None]) -> None:
    entry = sound_or_poison(decode_entry, changed(encode_entry(ENTRY), change))
    if entry is not None:
        assert sound_or_poison(decode_entry, encode_entry(entry)) == entry


def read_archive(packed: bytes) -> None:
    group = sound_or_poison(decode_group_bytes, packed)
    if group is not None:
        goes_on(group)


few = settings(max_examples=300, deadline=None)
many = settings(
    max_examples=20_000,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
wire = st.one_of(
    st.binary(max_size=200),
    changes.map(lambda change: msgpack.packb(changed(msgpack.unpackb(encode_group(example())), change))),
    st.tuples(st.integers(0, 400), st.binary(min_size=1, max_size=3)).map(
        lambda cut: encode_group(example())[: cut[0]] + cut[1] + encode_group(example())[cut[0] + len(cut[1]) :]
    ),
)
"""Archives: noise, changed fields, changed bytes."""

test_a_body_that_was_tampered_with_is_sound_or_refused = few(given(changes)(read_body))
test_an_entry_that_was_tampered_with_is_sound_or_refused = few(given(changes)(read_entry))
test_an_archive_that_was_tampered_with_is_sound_or_refused = few(given(wire)(read_archive))
test_many_tampered_bodies = pytest.mark.nightly(pytest.mark.timeout(900)(many(given(changes)(read_body))))
test_many_tampered_entries = pytest.mark.nightly(pytest.mark.timeout(900)(many(given(changes)(read_entry))))
test_many_tampered_archives = pytest.mark.nightly(pytest.mark.timeout(900)(many(given(wire)(read_archive))))


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_a_search_guided_by_coverage_finds_nothing(tmp_path: Path) -> None:
    pytest.importorskip("atheris", reason="atheris has wheels for x86_64 and Python 3.11 to 3.13 only")
    kept = tmp_path / "corpus"
    kept.mkdir()
    (kept / "archive").write_bytes(b"\0\0" + encode_group(example()))
    for at, value in enumerate(dict(sorted(body(example()).items())).values()):
        (kept / f"body-{at}").write_bytes(bytes([1, at]) + value)
    for at, value in enumerate(dict(sorted(encode_entry(ENTRY).items())).values()):
        (kept / f"entry-{at}").write_bytes(bytes([2, at]) + value)
    words = ["-m", "tests.unit.codec_fuzzer", "-max_total_time=120", f"-artifact_prefix={tmp_path}/", str(kept)]
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "DONE" in done.stderr


def spans(*rows: tuple[int, int, int, int]) -> dict[bytes, bytes | None]:
    return {b"spans:i4:2x4": None, b"spans:i4:%dx4" % len(rows): np.asarray(rows, "<i4").tobytes()}


def offsets(*numbers: int) -> dict[bytes, bytes | None]:
    return {b"offsets:i4": np.asarray(numbers, "<i4").tobytes()}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({b"size": b"1000000000"}, "size is 1000000000"),
        ({b"size": b"0"}, "size is 0"),
        ({b"size": b"9" * 5000}, "64 bits"),
        ({b"max_actions": b"99999999999"}, "max_actions"),
        ({b"temperature": b"nan"}, "temperature"),
        ({b"temperature": b"-1"}, "temperature"),
        ({b"rewards:f4": struct.pack("<2f", 1, float("nan"))}, "rewards holds nan at 1"),
        ({b"rewards:f4": struct.pack("<3f", 1, 1, 1)}, "2 siblings"),
        ({b"part.exact_match:f4": struct.pack("<2f", 1, float("inf"))}, "inf"),
        ({b"part.\xff:f4": b"\0" * 8}, "no readable name"),
        ({b"logprobs:f4": struct.pack("<3f", 0, float("-inf"), 0)}, "logprobs"),
        ({b"mask:u1": b"\x01\x02\x01"}, "mask"),
        (offsets(0, -2, 3), "offsets"),
        (offsets(0, 5, 3), "offsets"),
        (offsets(1, 2, 3), "offsets"),
        (offsets(0, 2, 2**31 - 1), "offsets"),
        (offsets(0, 2**31 - 1, -(2**31), -1, 3) | {b"size": b"4"}, "r2.text|offsets"),
        (spans(), "spans"),
        (spans((2, 0, 1, 5)), "span"),
        (spans((0, 0, 3, 5)), "span"),
        (spans((0, -1, 1, 5)), "span"),
        (spans((0, 2, 1, 5)), "span"),
        (spans((0, 0, 1, -5)), "span"),
        ({b"spans:i4:2x4": None, b"spans:i4:0x9999999999": b""}, "spans"),
        ({b"body": b"\xc0"}, "not a map"),
        ({b"body": msgpack.packb({"a": 1})}, "meta"),
        ({b"body": msgpack.packb({"meta": 7})}, "meta"),
        ({b"body": b"\x81\xa4meta" + b"\x91" * 100_000 + b"\xc0"}, "MessagePack"),
        ({b"body": b"\x81\xa4meta\xdf\xff\xff\xff\xff"}, "MessagePack"),
        ({b"body": b"\x81\x91\x01\x02"}, "MessagePack"),
        ({b"body": msgpack.packb({"meta": {"a": msgpack.ExtType(5, b"\0")}})}, "type 5"),
        ({b"body": pickle.dumps({"meta": {}})}, "MessagePack"),
    ],
)
def test_a_hostile_body_is_refused_by_what_is_wrong(change: dict[bytes, bytes | None], named: str) -> None:
    with pytest.raises(Poison, match=named):
        decode_group("a/0/1", "train", changed(body(example()), change))


@pytest.mark.parametrize(
    "group", ["../../etc/passwd", "/etc/passwd", "a//b", "a/../b", "a b", "a\nb", "a\0b", "\x1b[2J", "a" * 300, "", "é"]
)
def test_an_id_that_is_no_name_is_refused(group: str) -> None:
    with pytest.raises(Poison, match="group id"):
        decode_entry({**encode_entry(ENTRY), b"group": group.encode()})


def test_nothing_of_a_pickle_is_executed() -> None:
    opened: list[str] = []

    class Opens:
        def __reduce__(self) -> tuple[Any, ...]:
            return opened.append, ("executed",)

    packed = pickle.dumps({"meta": Opens()})
    for read in (
        decode_group_bytes,
        lambda value: decode_group("a", "train", changed(body(example()), {b"body": value})),
    ):
        with pytest.raises(Poison):
            read(packed)
    assert opened == []
