"""Where a group is, whether it is open, buried or closed: on the server while there is one, in the run's folder always.

For: `tidemill show`. Not for: what is told of it (`life`, `life_in_words`), or lists (`inspect`, the dashboard).
"""

from __future__ import annotations

import contextlib
import difflib
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, cast

from broker import codec
from broker.archive_index import GroupIndex
from broker.errors import Broken, Misconfigured, Poison, TidemillError, Unavailable
from broker.messages import Entry, Group, Kind
from broker.settings import BrokerSection, broker_url
from broker.streams import ROLE, Keys
from deploy.asking import asking, looking_client
from deploy.life import Life, life_of_buried, life_of_closed, life_of_open
from deploy.server import EMBEDDED, reachable

NEAR = 5
TRIES = 5
"""A group that moves on while it is looked at is looked for again so often."""
LOOKED_THROUGH = 20_000
"""Ids that are compared with one that is unknown."""


def show(folder: Path, settings: BrokerSection, group: str, progress: Callable[[int, int], None] | None = None) -> Life:
    """The group's life. Raises Misconfigured with the nearest ids when the run knows no such group, and Unavailable
    when the archive does not and the server is silent.

    What is open is asked first: a record in the archive may be of a try whose end did not come to pass, and a group
    that closes after the question was archived before it closed.
    """
    with GroupIndex(folder / "groups") as index:
        known = index.ids
        with living(folder, settings) as (server, silence):
            if server and (found := server.open_life(group)):
                return found
            index.refresh(progress)
            closed = index.read(group)
            if server and (closed is None or closed.fate == "buried") and (found := server.buried_life(group)):
                return found
            if closed is not None:
                return life_of_closed(closed) | ({"unasked": silence} if silence else {})
            ids = [*(server.ids() if server else []), *known()]
    raise unasked(folder, group, ids, silence) if silence else unknown(folder, group, ids)


@contextlib.contextmanager
def living(folder: Path, settings: BrokerSection) -> Generator[tuple[Server | None, str]]:
    """The run's server, and why it does not answer. One of a run's own that is down is started for the look; when its
    data have gone there is none, and nothing to say of it.
    """
    if broker_url(settings) == EMBEDDED and not (folder / "redis").is_dir():
        yield None, ""
        return
    with contextlib.ExitStack() as stack:
        url, server, silence = "", None, ""
        try:
            url = stack.enter_context(reachable(folder, settings))
            server = Server(url, folder.name)
            with asking(url):
                server.client.ping()
        except TidemillError as error:
            server, silence = None, str(error)
        with asking(url):
            yield server, silence


class Server:
    """What one run's server says of a group; bodies are bytes."""

    def __init__(self, url: str, run: str) -> None:
        self.client: Any = looking_client(url)
        self.keys = Keys(run)

    def ids(self) -> list[str]:
        return [each.decode("utf-8", "replace") for each in self.client.hkeys(self.keys.open)] + list(self.buried())

    def open_life(self, group: str, tries: int = TRIES) -> Life | None:
        """None for a group that is not open. Raises Broken for one whose entry is nowhere."""
        line = self.client.hget(self.keys.open, group)
        if line is None:
            return None
        stream, entry_id, kind, floor, last = line.decode().split(" ")
        if stream == "-":
            entry = Entry(
                group=group, kind=cast("Kind", kind), task="", size=0, floor=int(floor), last_version=int(last)
            )
            return life_of_open(None, entry, "", "", {"before": 0}, time.time()) | {
                "reason": "the server lost its entry; the feeder admits it again"
            }
        key = self.keys.stream(stream)
        found = self.client.xrange(key, entry_id, entry_id)
        if not found and tries:  # it moved on between two questions
            return self.open_life(group, tries - 1)
        if not found:
            raise Broken(
                f"{group} is open at `{stream}`, entry {entry_id}, and no such entry is there; nothing was done; "
                "`tidemill audit` holds all books against each other"
            )
        entry = codec.decode_entry(found[0][1])
        seconds, micros = self.client.time()
        hands = self.hands(stream, entry_id, key)
        return life_of_open(self.body(group, entry.kind), entry, stream, entry_id, hands, seconds + micros / 1e6)

    def hands(self, stream: str, entry_id: str, key: str) -> dict[str, Any]:
        """Who holds the entry, since when without a sign of progress; or how many wait before it."""
        pending = self.client.xpending_range(key, ROLE[stream], entry_id, entry_id, 1)
        if pending:
            one = pending[0]
            return {"reader": one["consumer"].decode(), "idle_s": one["time_since_delivered"] / 1000}
        groups = {one["name"].decode(): one for one in self.client.xinfo_groups(key)}
        read_to = groups[ROLE[stream]]["last-delivered-id"].decode()
        waiting = self.client.xrange(key, f"({read_to}", entry_id, count=LOOKED_THROUGH)
        return {"before": max(0, len(waiting) - 1)}

    def body(self, group: str, kind: Kind) -> Group | None:
        """None when it has gone, or is not to be read."""
        fields = self.client.hgetall(self.keys.group(group))
        with contextlib.suppress(Poison):
            return codec.decode_group(group, kind, fields) if fields else None
        return None

    def buried(self) -> dict[str, tuple[str, dict[bytes, bytes]]]:
        """Group → its last line in `dead`."""
        lines = self.client.xrange(self.keys.stream("dead"))
        return {fields.get(b"group", b"").decode("utf-8", "replace"): (line.decode(), fields) for line, fields in lines}

    def buried_life(self, group: str) -> Life | None:
        if group not in (dead := self.buried()):
            return None
        line, fields = dead[group]
        try:
            entry = codec.decode_entry(fields)
        except Poison:
            return None
        reason, stage = (fields.get(name, b"").decode("utf-8", "replace") for name in (b"reason", b"stage"))
        return life_of_buried(self.body(group, entry.kind), entry, reason, stage, line)


def unknown(folder: Path, group: str, ids: list[str]) -> Misconfigured:
    near = nearest(group, ids)
    if near:
        hint = f"did you mean {', '.join(near)}? type `tidemill show {near[0]} --run {folder.name}`"
    else:
        hint = f"`tidemill inspect open {folder.name}` lists the open ones, `tidemill dashboard` all of them"
    return Misconfigured(f"{folder.name} knows no group {group!r} ({len(ids)} groups there); nothing was done; {hint}")


def unasked(folder: Path, group: str, ids: list[str], silence: str) -> Unavailable:
    return Unavailable(
        f"looked for {group!r} only in the archive of {folder.name}, and it is not among the {len(ids)} groups there; "
        f"the server may know it: {silence}"
    )


def nearest(group: str, ids: list[str]) -> list[str]:
    """Ids that contain what was typed, those first that end with it; else the most alike, of the same place in another
    source if there are any.
    """
    containing = sorted((one for one in ids if group in one), key=lambda one: (not one.endswith(f"/{group}"), len(one)))
    place = group.partition("/")[2]
    candidates = [one for one in ids if place and one.partition("/")[2] == place] or ids[-LOOKED_THROUGH:]
    alike = containing or difflib.get_close_matches(group, candidates, n=NEAR, cutoff=0.4)
    return alike[:NEAR]
