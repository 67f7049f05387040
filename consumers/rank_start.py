"""Wiring of a rank beyond 0: the same learner as the trainer's, doing what rank 0 does, reporting like every role.

For: `python -m consumers rank`, which only a trainer starts (`learners.rank_processes`). Not for: what a rank does
(`learners.ranks`).
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from broker.errors import Misconfigured
from broker.metrics_endpoint import measured
from broker.redis_broker import RedisBroker
from broker.role_process import beating
from broker.settings import BrokerSection, broker_url, load_section
from broker.telemetry import Meter
from consumers.trainer_start import learner_arguments


async def serve(folder: Path, name: str, raw: dict[str, Any], meter: Meter) -> None:
    """Take part until rank 0 says `close`. Raises Misconfigured, or Transient when another rank is gone."""
    rank = os.environ.get("RANK", "")
    if not rank.isdecimal():
        raise Misconfigured(f"RANK is {rank!r}; nothing was started; ranks are started by a trainer with [train] ranks")
    broker = await RedisBroker.connect(broker_url(load_section(BrokerSection, "broker", raw["broker"])), folder.name)
    async with beating(broker, name, "rank", meter), measured(folder, raw, name, "rank", meter):
        await asyncio.to_thread(take_part, int(rank), folder, raw, meter)
    await broker.close()


def take_part(rank: int, folder: Path, raw: dict[str, Any], meter: Meter) -> None:
    from consumers.learners.ranks import serve_rank

    serve_rank(rank, **learner_arguments(folder, raw), meter=meter)
