"""`docker compose`, which reads the shipped files without an engine too."""

from __future__ import annotations

import pytest

from tests.compose.engine import NoEngine, client


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """In which it can be typed."""
    try:
        return client(tmp_path_factory.mktemp("client"))
    except NoEngine as reason:
        pytest.skip(f"no `docker compose`: {reason}")
