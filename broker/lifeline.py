"""A child process that ends with the one that started it, however that one ends.

For: every process that must not outlive its parent (roles under the launcher, the launcher's own server, rule workers
under a role). Not for: a server that several commands share, or anything that has to survive.

The kernel keeps the promise (Linux `PR_SET_PDEATHSIG`), so it holds after `kill -9` too. It watches the *thread* that
started the child: start children from a thread that lives as long as they should. Elsewhere than on Linux it does
nothing.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable

PR_SET_PDEATHSIG = 1

if sys.platform == "linux":
    LIBC = ctypes.CDLL(None, use_errno=True)  # loaded here: between fork and exec nothing may be loaded


def die_with_parent(parent: int, sent: signal.Signals = signal.SIGKILL) -> None:
    """Called in the child, with its parent's pid: from now on `sent` reaches this process when the parent is gone."""
    if sys.platform != "linux":
        return
    LIBC.prctl(PR_SET_PDEATHSIG, int(sent), 0, 0, 0)
    if os.getppid() != parent:  # it died between our fork and the call above
        os.kill(os.getpid(), sent)


def tied_to_this_process(sent: signal.Signals = signal.SIGKILL) -> Callable[[], None]:
    """The `preexec_fn` for a child of the calling process."""
    parent = os.getpid()
    return lambda: die_with_parent(parent, sent)
