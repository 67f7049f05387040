"""No GPU in a forked child: what a Celery task is told that asks torch for one.

For: the process that runs tasks. Not for: controllers, which are spawned and have a CUDA context of their own. A CUDA
context does not survive a fork, and the slot's GPU belongs to its controller. Without this a task would find no device
and quietly compute on the CPU, or take memory that the controller counts on.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, NoReturn

from broker.errors import Misconfigured

TORCH_CUDA = "torch.cuda"
STARTS = "_lazy_init"
"""The one function of torch that every first touch of a GPU goes through, from Python and from C++."""


def refuse(*_: Any, **__: Any) -> NoReturn:
    raise Misconfigured(
        "a Celery task asked for a GPU, but tasks run in a forked child, where CUDA cannot work, and the slot's GPU "
        "belongs to its controller; the task ends here, the controller goes on; do this work in a process of its own: "
        "a pool's controller ([pools.NAME] command), or `python -m …`"
    )


def hide_gpus() -> None:
    """From now on in this process libraries see no device, and torch says why it has none as soon as it is asked."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    if TORCH_CUDA in sys.modules:
        guard(sys.modules[TORCH_CUDA])
    else:
        sys.meta_path.insert(0, Guard())


def guard(cuda: ModuleType) -> None:
    """Put `refuse` in the place of torch's start of CUDA, also where a module of torch took it by name."""
    start = getattr(cuda, STARTS)
    for name, module in list(sys.modules.items()):
        if name.startswith("torch.") and getattr(module, STARTS, None) is start:
            setattr(module, STARTS, refuse)


class Guard(MetaPathFinder):
    """Waits for the import of torch.cuda, lets it happen, and guards what came of it."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != TORCH_CUDA:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def executed(module: ModuleType) -> None:
            execute(module)
            guard(module)

        spec.loader.exec_module = executed  # type: ignore[method-assign]
        return spec
