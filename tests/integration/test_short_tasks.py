"""Operators' short tasks: they answer, refuse what is wrong with what would be right, and never touch a GPU."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.errors import Broken, Misconfigured
from broker.fleet import FLEET_VARIABLE
from broker.redis_broker import RedisBroker
from broker.settings import URL_VARIABLE
from broker.weights import TENSORS, VersionStore
from scheduler import short_tasks
from tests.integration.test_launcher import QUICK, until
from tests.integration.test_slots import Host, hosted

ROOT = Path(__file__).parents[2]
BRIEF = ["run.steps=9", "train.checkpoint_every=4", "prompts.eval.size=0", "weights.keep=4"]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A run that has ended, so that its store stands still, and a worker that also takes tasks of one's own."""
    with hosted(tmp_path_factory.mktemp("tasks"), [*QUICK, *BRIEF]) as made:
        made.begin()
        made.start("gpu0", "train")
        start_with_own_tasks(made, "gpu1", "rollout")
        until(lambda: made.version() >= 9, 60)
        made.order("gpu0", "")
        made.reach("gpu0", state="vacant")
        yield made


@pytest.fixture(autouse=True)
def fleet(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a worker's environment says."""
    monkeypatch.setenv(URL_VARIABLE, host.url)
    monkeypatch.delenv(FLEET_VARIABLE, raising=False)


def start_with_own_tasks(host: Host, slot: str, pool: str) -> None:
    argv = [sys.executable, "-m", "celery", "-A", "scheduler.slots", "worker", "-n", f"{slot}@here", "-c", "1"]
    argv += ["-Q", "control,mine", "--slot", slot, "--initial-pool", pool, "-l", "warning"]
    argv += ["--include", "tests.integration.gpu_tasks"]
    environment = {**host.environment, "PYTHONPATH": str(ROOT)}
    with (host.folder.parent / f"{slot}.worker").open("ab") as said:
        host.workers[slot] = subprocess.Popen(argv, env=environment, stdout=said, stderr=said)


def celery(host: Host, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "celery", "-A", "scheduler.slots", *words],
        env=host.environment,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    return done.stdout + done.stderr


def answered(host: Host, task: str, queue: str = "control") -> str:
    """What `celery call` and `celery result` print."""
    return celery(host, "result", celery(host, "call", task, "--queue", queue).split()[-1])


def refusal(call: Any, *args: Any, **kwargs: Any) -> str:
    with pytest.raises(Misconfigured) as caught:
        call(*args, **kwargs)
    return str(caught.value)


def whole(host: Host) -> list[int]:
    """Versions whose tensors are there."""
    return [one["version"] for one in short_tasks.versions() if one["tensors"]]


def test_versions_of_the_served_run_are_listed_by_a_worker(host: Host) -> None:
    said = answered(host, "tidemill.versions")
    assert "'version': 9, 'epoch': 1, 'path': 'versions/000009-e001', 'tensors': True" in said
    assert "holds no settings.json" in refusal(short_tasks.versions, run="/nowhere")


def test_a_version_is_verified_and_a_torn_or_missing_one_named(host: Host, tmp_path: Path) -> None:
    assert short_tasks.verify_version(9) == short_tasks.verify_version("newest")
    assert 'or "newest"' in refusal(short_tasks.verify_version, "latest")
    assert f"there are: {', '.join(map(str, whole(host)))}" in refusal(short_tasks.verify_version, 10_000)
    shutil.copytree(host.folder / "store", tmp_path / "store")
    shutil.copy(host.folder / "settings.json", tmp_path)
    newest = VersionStore(tmp_path / "store").manifests()[-1]
    (tmp_path / "store" / newest.path / TENSORS).write_bytes(b"torn")
    with pytest.raises(Broken, match=f"announced {newest.digest[:12]}"):
        short_tasks.verify_version(9, run=str(tmp_path))
    assert "has no model" in refusal(short_tasks.export_version, 9, str(tmp_path / "torn"), run=str(tmp_path))
    shutil.copytree(host.folder / "model", tmp_path / "model")
    with pytest.raises(Broken):
        short_tasks.export_version(9, str(tmp_path / "torn"), run=str(tmp_path))
    assert {path.name for path in tmp_path.iterdir()} == {"store", "model", "settings.json"}


def test_a_version_is_exported_as_a_hugging_face_folder_once(host: Host, tmp_path: Path) -> None:
    target = tmp_path / "nine"
    assert short_tasks.export_version(9, str(target))["to"] == str(target)
    files = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert {path.name for path in target.iterdir()} == files
    assert (target / TENSORS).read_bytes() == (host.folder / "store/versions/000009-e001" / TENSORS).read_bytes()
    assert "exists already" in refusal(short_tasks.export_version, 9, str(target))
    assert "no absolute path" in refusal(short_tasks.export_version, 9, "models/nine")
    assert "there are: " in refusal(short_tasks.export_version, 10_000, str(tmp_path / "ten"))
    assert [path.name for path in tmp_path.iterdir()] == ["nine"]


def test_pruning_says_what_would_go_and_then_takes_only_that(host: Host) -> None:
    async def hold() -> None:
        broker = await RedisBroker.connect(host.url, host.folder.name)
        await broker.enter(timeout_s=5)
        assert await broker.hold(7, "a person", 600) is not None
        await broker.close()

    assert "say 1 or more" in refusal(short_tasks.prune_versions, keep=-1)
    asyncio.run(hold())
    before = whole(host)
    assert {6, 7, 8, 9} <= set(before)
    would = short_tasks.prune_versions(keep=1)
    assert whole(host) == before
    assert {"versions/000006-e001", "versions/000008-e001"} <= set(would["tensors"])
    did = short_tasks.prune_versions(keep=1, dry_run=False)
    assert did == {**would, "dry_run": False}
    assert whole(host) == [7, 9]
    store = VersionStore(host.folder / "store")
    assert [version for version, _, _ in store.checkpoints()] == [4, 8]
    assert [one.version for one in store.manifests() if one.version > 0] == list(range(4, 10))


def test_a_task_that_asks_for_a_gpu_is_told_what_happened_and_what_to_do(host: Host) -> None:
    for task in ("mine.start_cuda", "mine.move_a_tensor"):
        said = answered(host, task, "mine")
        assert "Misconfigured" in said and "forked child" in said and "`python -m …`" in said
    assert answered(host, "mine.stay_on_the_cpu", "mine").strip() == "2.0"
