"""The server's own rate for three hops as plain commands: what `broker_capacity` holds the broker against.

For: XADD, XREADGROUP, XACK and XDEL of the same bodies on the same kind of server, append-only file on, by a client
that costs next to nothing: commands are joined bytes, answers are counted and not read (their length is known after the
first round), and two pipelines are under way at any time. Servers come with a program for this, but the embedded one
does not. Not for: use. Nothing is checked, nobody owns an entry, a group can be anywhere twice.

`whole`: each hop's entry carries the body so far. `apart`: as the broker keeps it, bodies in hashes to which each hop
adds its part, entries of a few words, each body read once per hop and deleted at the end.
"""

from __future__ import annotations

import socket
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Literal, cast

import hiredis
import redis

from benchmarks.message_sizes import Parts, parts_of
from benchmarks.server_use import server_use
from broker import codec, embedded_server
from broker.fields import Fields
from broker.messages import Entry, Group
from broker.streams import WORK_STREAMS

Layout = Literal["whole", "apart"]
LAYOUTS: tuple[Layout, ...] = ("whole", "apart")
READ = 32
"""Groups in a pipeline and in one read, as in `broker`."""
MOST = 8 << 20
"""Bytes of bodies in a pipeline; larger ones make it shorter."""
FIRST = 10**9
"""The first entry's number: all have as many digits, so that all pipelines have replies of one length."""
ID_BYTES = len(b"%d-0" % FIRST)
READER = b"reader"
LAST = b"that was all"
ANSWER_S = 30.0


Piece = bytes | int
"""Of a pipeline that can be sent again: bytes as they are, or the place of a group whose id goes there."""


def measured(body_bytes: int, total: int, layout: Layout) -> dict[str, float]:
    """So many groups through a new server, as fast as it takes them; whole pipelines of them."""
    many = max(1, min(READ, MOST // body_bytes))
    rounds, pieces = total // many, pipeline(layout, parts_added(parts_of(body_bytes)), many)
    with (
        tempfile.TemporaryDirectory() as name,
        embedded_server.serving(Path(name)) as url,
        socket.socket(socket.AF_UNIX) as server,
    ):
        server.settimeout(ANSWER_S)
        server.connect(url.removeprefix("unix://"))
        answered(server, groups_of_readers())
        length = answered(server, filled(pieces, FIRST, many))
        before, began, cpu_began = server_use(url), time.monotonic(), time.process_time()
        streamed(server, pieces, many, rounds, length)
        seconds, cpu_s, used = time.monotonic() - began, time.process_time() - cpu_began, server_use(url) - before
        if left := answered(server, b""):
            raise RuntimeError(f"{left} bytes of answers are left over: some were no settled groups")
        check(url, many * (rounds + 1))
    groups = many * rounds
    figures = {
        "groups_per_s": groups / seconds,
        "server_us_per_group": 1e6 * used.cpu_s / groups,
        "clients_us_per_group": 1e6 * cpu_s / groups,
        "server_in_bytes_per_group": used.in_bytes / groups,
        "server_out_bytes_per_group": used.out_bytes / groups,
    }
    return {figure: round(value, 1) for figure, value in figures.items()}


def streamed(server: socket.socket, pieces: Sequence[Piece], many: int, rounds: int, length: int) -> None:
    """One pipeline ahead of the answers, so that the server never waits for us."""
    for number in range(1, rounds + 1):
        server.sendall(filled(pieces, FIRST + number * many, many))
        if number > 1:
            skip(server, length)
    skip(server, length)


def check(url: str, groups: int) -> None:
    """Raises RuntimeError unless every group was read from each stream and settled there."""
    with redis.Redis.from_url(url) as client:
        for stream in WORK_STREAMS:
            told = cast("list[dict[str, int]]", client.xinfo_groups(stream))[0]
            left = client.xlen(stream), told["pending"], told["entries-read"]
            if left != (0, 0, groups):
                raise RuntimeError(f"{stream}: length, pending and read are {left} after {groups} groups")


# ---- what is sent


def parts_added(parts: Parts) -> list[Fields]:
    """What each hop adds to the body: prompt, rollouts, scores."""
    prompt = codec.encode_prompt(Group(id="bench", kind="train", prompt=parts.prompt))
    return [prompt, codec.encode_rollouts(parts.rollouts), codec.encode_scores(parts.scores)]


def pipeline(layout: Layout, adds: Sequence[Fields], many: int) -> list[Piece]:
    """Three hops of so many groups, hop after hop."""
    said: list[Piece] = []
    body: Fields = {}
    places, apart = range(many), layout == "apart"
    entry = codec.encode_entry(Entry(group="bench", kind="train", task="addition", size=8, floor=0, last_version=3))
    for stream, added in zip(map(str.encode, WORK_STREAMS), adds, strict=True):
        body |= added
        fields = flat(entry if apart else body)
        for place in places:
            if apart:
                said += command(b"HSET", place, *flat(added))
            said += command(b"XADD", stream, place, *fields)
        said += command(b"XREADGROUP", b"GROUP", READER, READER, b"COUNT", b"%d" % many, b"STREAMS", stream, b">")
        if apart:
            said += [piece for place in places for piece in command(b"HGETALL", place)]
        said += command(b"XACK", stream, READER, *places) + command(b"XDEL", stream, *places)
    if apart:
        said += command(b"DEL", *places)
    return merged(said)


def groups_of_readers() -> bytes:
    words = ([b"XGROUP", b"CREATE", name.encode(), READER, b"0", b"MKSTREAM"] for name in WORK_STREAMS)
    return b"".join(cast("bytes", piece) for one in words for piece in command(*one))


def command(*words: Piece) -> list[Piece]:
    """One command as it travels; a number stands for the id of a group."""
    said: list[Piece] = [b"*%d\r\n" % len(words)]
    for word in words:
        size = ID_BYTES if isinstance(word, int) else len(word)
        said += [b"$%d\r\n" % size, word, b"\r\n"]
    return said


def merged(pieces: Sequence[Piece]) -> list[Piece]:
    """The same with neighbouring bytes in one piece, so that filling it in costs little."""
    return [
        one
        for is_place, run in groupby(pieces, lambda piece: isinstance(piece, int))
        for one in (run if is_place else [b"".join(cast("Iterator[bytes]", run))])
    ]


def filled(pieces: Sequence[Piece], first: int, many: int) -> bytes:
    ids = [b"%d-0" % number for number in range(first, first + many)]
    return b"".join([ids[piece] if isinstance(piece, int) else piece for piece in pieces])


def flat(fields: Fields) -> list[bytes]:
    return [part for pair in fields.items() for part in pair]


# ---- what comes back


def answered(server: socket.socket, said: bytes) -> int:
    """Send this, read the answers until the one to a last ECHO, and say how many bytes those before it took. Raises
    RuntimeError for an answer that is an error.
    """
    end = cast("list[bytes]", command(b"ECHO", LAST))
    server.sendall(said + b"".join(end))
    reader, size, one = hiredis.Reader(), 0, None
    while one != LAST:
        piece = server.recv(1 << 20)
        size += len(piece)
        reader.feed(piece)
        while (found := reader.gets()) is not False:
            one = found
            if isinstance(one, Exception):
                raise RuntimeError(f"a plain command was refused: {one}")
    return size - len(b"".join(end[4:]))


def skip(server: socket.socket, length: int) -> None:
    """So many bytes of answers."""
    place = memoryview(bytearray(1 << 20))
    while length:
        taken = server.recv_into(place, min(length, len(place)))
        if not taken:
            raise RuntimeError("the server has closed the connection")
        length -= taken
