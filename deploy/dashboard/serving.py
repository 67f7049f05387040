"""Listening: an address, a token where one is needed, and the address to open printed.

For: `tidemill dashboard`. Not for: what is served (`server`).
"""

from __future__ import annotations

import socket
from pathlib import Path
from types import FrameType

import uvicorn
from rich.console import Console

from broker.errors import Misconfigured
from deploy.dashboard.access import is_loopback, new_token
from deploy.dashboard.server import application

BACKLOG = 128
"""Connections that may wait to be accepted."""
LEAVE_S = 2
"""Longest it waits for answers that are under way."""


def serve(root: Path, folder: Path | None, host: str, port: int, token: str, console: Console) -> None:
    """Until Ctrl-C or SIGTERM. Raises Misconfigured when the address cannot be listened on."""
    listening = listen(host, port)
    given, token = bool(token), token or ("" if is_loopback(host) else new_token())
    address = address_of(host, listening.getsockname()[1]) + (f"/runs/{folder.name}" if folder else "/")
    shown = f"{address}?token={token}" if token and not given else address
    console.print(f"dashboard: {shown}", highlight=False, markup=False, soft_wrap=True)
    if token and not given:
        console.print("whoever has this address can look; TIDEMILL_TOKEN sets a token of your own", highlight=False)
    config = uvicorn.Config(
        application(root, token), access_log=False, log_level="warning", timeout_graceful_shutdown=LEAVE_S
    )
    PoliteServer(config).run(sockets=[listening])


class PoliteServer(uvicorn.Server):
    """Ends its streams of events when it is told to end: they would never end by themselves."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.started:
            self.config.app.state.desk.dismiss()  # type: ignore[union-attr]
        super().handle_exit(sig, frame)


def listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)  # from now on nobody is turned away, though the first answer takes a moment
    except (OSError, OverflowError) as error:
        raise Misconfigured(
            f"the dashboard cannot listen on {host} port {port}: {error}; nothing was started; name another, such as "
            "--port 8301, or --port 0 for a free one"
        ) from None
    return listening


def address_of(host: str, port: int) -> str:
    """For a browser on this machine."""
    name = "127.0.0.1" if host in ("0.0.0.0", "::", "") else host  # noqa: S104 - every interface, for a browser here
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"
