"""A full disk is a sentence and an exit code, in a role and for a command; every other error stays what it is."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest
import structlog

from broker.errors import Transient, full_disk
from broker.role_process import run_role


def write_to_a_full_disk() -> None:
    with Path("/dev/full").open("w") as file:
        file.write("x")


def test_a_full_disk_is_called_so_and_other_errors_are_not() -> None:
    with pytest.raises(OSError, match="No space left") as caught:
        write_to_a_full_disk()
    meant = full_disk(caught.value)
    assert isinstance(meant, Transient)
    assert str(meant).startswith(
        "the disk is full; what was not written is not done, and what was committed stays; free"
    )
    named = full_disk(OSError(errno.EDQUOT, "Disk quota exceeded", "/runs/a/model.safetensors"))
    assert str(named).startswith("the disk is full (/runs/a/model.safetensors);")
    assert full_disk(FileNotFoundError(errno.ENOENT, "No such file")) is None
    assert full_disk(ValueError("28")) is None


def test_a_role_that_meets_a_full_disk_leaves_with_a_passing_fault_and_no_traceback() -> None:
    async def role(stop: asyncio.Event) -> None:
        write_to_a_full_disk()

    with structlog.testing.capture_logs() as said:
        assert run_role(role) == Transient.exit_code
    (line,) = said
    assert (line["event"], line["kind"]) == ("stopped", "Transient")
    assert "the disk is full" in line["reason"]
    assert "exc_info" not in line
