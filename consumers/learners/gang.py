"""The ranks of one learner: how they meet, how rank 0 tells the others what to do, how they notice that one is gone.

For: processes that train together. Not for: what they do (`deepspeed`). Rank 0 is driven by the trainer consumer; the
others wait for its calls. A rank alone needs no network.

All waits have deadlines: meeting (`MEET_S`), a collective (`COLLECTIVE_S`), and waiting for a call, which ends when
rank 0 dies since its store dies with it. A gang is never mended: when one is lost, all start again with a meeting place
of their own.
"""

# pyright: reportPrivateImportUsage=false
# (torch.distributed does not list the stores it documents among its exports)
from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgpack
import torch
import torch.distributed as dist
from torch import Tensor

from broker.errors import Misconfigured, Transient

MEET_S = 300.0
"""Longest wait for all ranks to start; a large model takes minutes to read."""

COLLECTIVE_S = 600.0
"""Longest wait inside one collective: a rank may be a whole forward pass behind."""

LOOK_S = 5.0
"""Between two looks for a call, an idle rank checks that rank 0 still lives."""

HERE = "127.0.0.1"


@dataclass(slots=True)
class Gang:
    rank: int
    size: int
    store: dist.Store | None = None
    """None for a rank alone."""
    talk: dist.ProcessGroup | None = None
    """Calls and sums go over gloo, also where gradients go over NCCL."""
    calls: int = 0

    def tell(self, call: Mapping[str, Any]) -> None:
        """Rank 0: send a call to all others; plain values and bytes only. Raises Transient when a rank was lost."""
        if self.store is None:
            return
        packed: bytes = msgpack.Packer().pack(call)
        self.store.set(f"call/{self.calls}", str(len(packed)))
        self.calls += 1
        self.broadcast(torch.frombuffer(bytearray(packed), dtype=torch.uint8))

    def next_call(self) -> dict[str, Any]:
        """consumes: rank 0's calls   produces: the next one
        waits for: rank 0   unblocked by: a call, or rank 0's death (Transient)
        """
        assert self.store is not None
        key = f"call/{self.calls}"
        while True:
            try:
                self.store.wait([key], timedelta(seconds=LOOK_S))
                break
            except dist.DistStoreError:
                continue
            except RuntimeError as error:
                raise Transient(f"rank 0 is gone ({error}); this rank leaves and is started again with it") from error
        packed = torch.empty(int(self.store.get(key)), dtype=torch.uint8)
        self.calls += 1
        self.broadcast(packed)
        return msgpack.unpackb(packed.numpy().tobytes())

    def broadcast(self, tensor: Tensor) -> None:
        with lost_ranks():
            dist.broadcast(tensor, src=0, group=self.talk)

    def total(self, values: Tensor) -> Tensor:
        """Sum over ranks, on every rank."""
        return self.reduced(values, dist.ReduceOp.SUM)

    def largest(self, values: Tensor) -> Tensor:
        return self.reduced(values, dist.ReduceOp.MAX)

    def reduced(self, values: Tensor, how: Any) -> Tensor:
        if self.store is not None:
            with lost_ranks():
                dist.all_reduce(values, op=how, group=self.talk)
        return values

    def leave(self) -> None:
        if self.store is not None and dist.is_initialized():
            dist.destroy_process_group()


class lost_ranks:  # noqa: N801  reads as what it catches
    """Turns a collective's failure into a Transient that says what happens next; other errors pass as they are.

    A death may show in any collective, DeepSpeed's own too: gloo reports it as a plain RuntimeError that names gloo.
    """

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error)):
            raise Transient(
                f"a rank was lost or too slow ({error}); this process leaves, and all ranks start again"
            ) from error


def meeting_place() -> dist.TCPStore:
    """Where the ranks of one attempt meet: a free port of this machine, reached from nowhere else, served while the
    answer lives. MASTER_ADDR and MASTER_PORT name it, here and in processes started from now on.
    """
    door = socket.create_server((HERE, 0))
    port = door.getsockname()[1]
    os.environ.update(MASTER_ADDR=HERE, MASTER_PORT=str(port))
    return dist.TCPStore(HERE, port, is_master=True, wait_for_workers=False, master_listen_fd=door.detach())


def gather(rank: int, size: int, *, backend: str) -> Gang:
    """Meet the other ranks at MASTER_ADDR:MASTER_PORT. Raises Misconfigured, or Transient at the deadline."""
    if size == 1:
        if not dist.is_initialized():
            dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
        return Gang(rank=0, size=1)
    host, port = os.environ.get("MASTER_ADDR", "127.0.0.1"), os.environ.get("MASTER_PORT", "")
    if not port.isdecimal():
        raise Misconfigured(
            f"[train] ranks = {size}, but MASTER_PORT is {port!r}; nothing was started; set MASTER_ADDR and "
            "MASTER_PORT, the same for all ranks, to their `meeting_place`"
        )
    try:
        store = dist.TCPStore(host, int(port), timeout=timedelta(seconds=MEET_S), wait_for_workers=False)
        dist.init_process_group(
            backend,
            store=dist.PrefixStore("ranks", store),
            rank=rank,
            world_size=size,
            timeout=timedelta(seconds=MEET_S),
        )
    except RuntimeError as error:
        raise Transient(
            f"{size} ranks did not meet at {host}:{port} within {MEET_S:.0f} s ({error}); starting again"
        ) from error
    talk: Any = dist.new_group(backend="gloo", timeout=timedelta(seconds=COLLECTIVE_S))
    return Gang(rank=rank, size=size, store=store, talk=talk)
