"""The brokers under test, each as a world of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from broker import embedded_server
from tests.contract.broker_world import MemoryWorld, World, redis_world


@pytest.fixture(scope="session")
def redis_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A server of our own for the whole suite; every test has its own run on it."""
    with embedded_server.serving(folder := tmp_path_factory.mktemp("redis")):
        yield folder


@pytest_asyncio.fixture(params=["memory", "redis"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    if request.param == "memory":
        yield MemoryWorld()
        return
    async with redis_world(request.getfixturevalue("redis_folder")) as on_redis:
        yield on_redis
