"""How many tokens a second one server can carry, from what a group costs it: arithmetic, and nothing else.

For: `broker_capacity`. Not for: measuring what a group costs. Two things end a server: its one core (processor time per
group) and its network (bytes in and bytes out are carried side by side, so the larger of the two counts). What else
would end it first is told beside: memory for the groups that are open, and bytes that the append-only file takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

LINKS: Mapping[str, float] = {"10 Gbit/s": 1.25e9, "100 Gbit/s": 12.5e9}
"""Name → bytes a second, each way."""
SHARE = 0.5
"""Of a server's core, and of its link, that a plan should use: the rest is for bursts, for hosts that crowd it, and for
the protocol of the network, which is not in the figures."""
GPU_TOKENS_PER_S = 3000.0
"""Sampled tokens that one GPU is taken to add: put your own there."""


class Cost(NamedTuple):
    """Of one group, from admission to the ledger."""

    tokens: int
    server_us: float
    """Processor time of the server."""
    in_bytes: float
    """To the server; its append-only file takes as many."""
    out_bytes: float
    """From it: a group is read whole as often as there are stages after it is sampled."""
    body_bytes: float
    """Kept by the server while the group is open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """Of one server."""

    by_core: float
    """Groups a second, with its core full."""
    by_link: float
    """Groups a second, with its link full."""
    tokens: int
    """Of a group."""

    @property
    def ends(self) -> Literal["core", "link"]:
        """What is full first."""
        return "core" if self.by_core <= self.by_link else "link"

    @property
    def groups_per_s(self) -> float:
        return min(self.by_core, self.by_link)

    @property
    def tokens_per_s(self) -> float:
        return self.tokens * self.groups_per_s

    def gpus(self, each: float = GPU_TOKENS_PER_S, share: float = SHARE) -> float:
        """GPUs that sample `each` tokens a second and together take `share` of this."""
        return share * self.tokens_per_s / each


def capacity(cost: Cost, link_bytes_per_s: float) -> Capacity:
    """
    >>> found = capacity(Cost(8192, 500.0, 100e3, 200e3, 100e3), 1.25e9)
    >>> found.ends, found.groups_per_s, found.tokens_per_s
    ('core', 2000.0, 16384000.0)
    """
    return Capacity(
        by_core=1e6 / cost.server_us,
        by_link=link_bytes_per_s / max(cost.in_bytes, cost.out_bytes),
        tokens=cost.tokens,
    )


def core_share(cost: Cost, tokens_per_s: float) -> float:
    """Of the server's core that a fleet takes which samples so many tokens a second."""
    return tokens_per_s / cost.tokens * cost.server_us / 1e6
