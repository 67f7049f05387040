"""A dashboard as a person starts it, and asking it things."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Self

from tests.integration.test_launcher import until


class Dashboard:
    """`tidemill dashboard` as a process of its own."""

    def __init__(self, root: Path, *arguments: str, port: int = 0, **environment: str) -> None:
        root.mkdir(exist_ok=True)
        self.printed = root.parent / f"dashboard.{time.monotonic_ns()}.printed"
        with self.printed.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "deploy.cli", "dashboard", *arguments, "--port", str(port)],
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, "TIDEMILL_RUNS": str(root), **environment},
            )
        until(lambda: self.process.poll() is not None or "dashboard: " in self.text())
        assert self.process.poll() is None, self.text()
        address = re.search(r"dashboard: (http://\S+)", self.text())
        assert address, self.text()
        self.address = address[1]
        self.port = int(re.findall(r":(\d+)/", self.address)[0])
        until(lambda: self.get("/health")[0] == 200)

    def text(self) -> str:
        return self.printed.read_text()

    def get(self, path: str, **headers: str) -> tuple[int, str]:
        """Status and body; status 0 when nobody answers."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except OSError:
            return 0, ""
        finally:
            connection.close()

    def json(self, path: str) -> Any:
        status, body = self.get(path)
        assert status == 200, body
        return json.loads(body)

    def end(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"the dashboard did not end: {self.text()}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
