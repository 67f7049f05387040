"""What a server has spent since it started, by its own count: processor time, and bytes in and out.

For: the difference between two moments. Not for: its memory, or one command's time.
"""

from __future__ import annotations

from dataclasses import dataclass

import redis


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerUse:
    """As INFO tells it; all threads of the server's process."""

    cpu_s: float
    in_bytes: int
    """From clients, commands and all."""
    out_bytes: int

    def __sub__(self, before: ServerUse) -> ServerUse:
        return ServerUse(
            cpu_s=self.cpu_s - before.cpu_s,
            in_bytes=self.in_bytes - before.in_bytes,
            out_bytes=self.out_bytes - before.out_bytes,
        )


def server_use(url: str) -> ServerUse:
    """Of the server at `url`, asked over a new connection."""
    with redis.Redis.from_url(url) as client:
        return use_told(client)


def use_told(client: redis.Redis) -> ServerUse:
    """Of the server that `client` asks; it costs the server some tenths of a millisecond."""
    cpu, stats = (client.info(section) for section in ("cpu", "stats"))
    return ServerUse(
        cpu_s=cpu["used_cpu_user"] + cpu["used_cpu_sys"],
        in_bytes=stats["total_net_input_bytes"],
        out_bytes=stats["total_net_output_bytes"],
    )
