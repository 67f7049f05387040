"""Waiting for a run to open without being deaf to the order to leave.

For: every role that enters a run. Not for: what entering means (`contract.RunBroker.enter`).
"""

from __future__ import annotations

import asyncio

from broker.cancellation import end
from broker.contract import RunBroker, RunState


async def entered(broker: RunBroker, stop: asyncio.Event, enter_s: float) -> RunState | None:
    """The run's state once it is open; None when `stop` came first. Raises Unavailable after `enter_s`."""
    entering = asyncio.ensure_future(broker.enter(timeout_s=enter_s))
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((entering, stopping), return_when=asyncio.FIRST_COMPLETED)
        return entering.result() if entering.done() else None
    finally:
        await end((entering, stopping))
