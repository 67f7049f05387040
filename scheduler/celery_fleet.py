"""Celery as a fleet uses it: one application per server and fleet, and the bells of its slots.

For: workers, the stock commands, whoever rings. Not for: what a worker does (`slots`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from celery import Celery

from broker.address import for_client

QUEUE = "control"
ANSWER_S = 5.0
"""Longest Celery waits for an answer: without it a worker whose network is gone hears neither bells nor signals."""


def application(url: str, fleet: str) -> Celery:
    """The application of this fleet on this server. It connects when it is used."""
    address = celery_url(for_client(url))
    celery = Celery("tidemill", broker=address, backend=address)
    prefix = f"celery:{fleet}:"
    celery.conf.update(
        imports=("scheduler.short_tasks",),
        task_default_queue=QUEUE,
        task_ignore_result=False,
        result_expires=3600,
        broker_connection_retry_on_startup=True,
        broker_transport_options={"polling_interval": 0.1, "global_keyprefix": prefix, **deadlines(address)},
        broker_connection_max_retries=None,  # a worker that gave up would take its controller along
        result_backend_transport_options={"global_keyprefix": prefix},
        redis_socket_timeout=ANSWER_S,
        redis_socket_connect_timeout=ANSWER_S,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,  # our lines are records already
        worker_cancel_long_running_tasks_on_connection_loss=False,
    )
    return celery


def celery_url(url: str) -> str:
    """Celery's way of writing a server's address: unix:///path becomes redis+socket:///path, and over TLS it wants to
    hear how certificates are checked: like everybody else, unless the address says otherwise.
    """
    if url.startswith("unix://"):
        return url.replace("unix://", "redis+socket://", 1)
    if not url.startswith("rediss://"):
        return url
    parts = urlsplit(url)
    asked = {"ssl_cert_reqs": "required", **dict(parse_qsl(parts.query))}
    asked["ssl_cert_reqs"] = f"CERT_{asked['ssl_cert_reqs'].upper().removeprefix('CERT_')}"
    return urlunsplit(parts._replace(query=urlencode(asked)))


def deadlines(address: str) -> dict[str, Any]:
    """Of Celery's own connections; a unix socket knows no keep-alive."""
    network = {"socket_keepalive": True, "socket_connect_timeout": ANSWER_S} if "socket:" not in address else {}
    return {"socket_timeout": ANSWER_S, "health_check_interval": 10, **network}


def bell_of(celery: Celery) -> Callable[[str, str, int], None]:
    """Rings the bell of a slot of the application's fleet, by (node, pool, epoch); that it is heard is not needed, its
    record counts.
    """

    def ring(node: str, pool: str, epoch: int) -> None:
        celery.control.broadcast("assign_pool", arguments={"pool": pool, "epoch": epoch}, destination=[node])

    return ring
