"""A role that leaves at once with the same passing fault: `python -m tests.integration.passing_fault`.

For: `[pools.NAME] command`. Not for: working.
"""

from __future__ import annotations

import asyncio

from broker.errors import Transient
from broker.role_process import leave, run_role


async def work(stop: asyncio.Event) -> None:
    raise Transient("the licence server is full; this role leaves and is started again; nothing is to mend")


if __name__ == "__main__":
    leave(run_role(work))
