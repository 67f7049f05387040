"""The dashboard over HTTP: who may look, what it tells of runs that are empty, finished or searched, and what it costs.

Run folders are written as a run leaves them; no server is needed for any of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import Generator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders

from broker.archive import Archive
from broker.messages import Delivery, Entry, Group, Prompt, Rollouts, Scores
from deploy.dashboard import frozen
from deploy.dashboard.frozen import freeze
from deploy.dashboard.watch import Watch
from deploy.run_check import load_run, saved_run
from deploy.run_folder import new_run_folder
from tests.integration.dashboards import Dashboard
from tests.integration.test_launcher import lay_model, until

HOSTILE = "</script><script>window.broken = true</script>"


def finished_group(number: int, prompt: str = "12+34=") -> Group:
    """Two siblings of three tokens, `640</s>` and `641</s>`: the first is right; versions 3, then 4 in the second."""
    given = Prompt(text=prompt, actions=np.array([1, 5], np.int32), size=2, seed=number, answer="640", task="addition")
    rollouts = Rollouts(
        texts=("640", "641"),
        actions=np.array([10, 8, 4, 2, 10, 8, 5, 2], np.int32),
        offsets=np.array([0, 4, 8], np.int32),
        logprobs=np.log(np.array([0.9, 0.5, 0.25, 1.0] * 2, np.float32)),
        mask=np.ones(8, np.uint8),
        spans=np.array([[0, 0, 4, 3], [1, 0, 2, 3], [1, 2, 4, 4]], np.int32),
        finishes=("stop", "stop"),
    )
    scores = Scores(rewards=np.array([1.0, number % 5 / 10], np.float32))
    return Group(id=f"addition/0/{number}", kind="train", prompt=given).with_rollouts(rollouts).with_scores(scores)


def lay_groups(folder: Path, groups: int) -> None:
    """Every third retired, the others trained into version 5; the last one buried."""
    archive = Archive(folder / "groups", "trainer-0")
    for number in range(groups):
        entry = Entry(group=f"addition/0/{number}", kind="train", task="addition", size=2, floor=3, last_version=4)
        delivery = Delivery(stream="scored", entry_id=f"{number + 1}-0", entry=entry)
        group = finished_group(number)
        if number == groups - 1:
            archive.append(
                finished_group(number, HOSTILE), delivery, fate="buried", reason="the rule raised: division by zero"
            )
        elif number % 3 == 0:
            archive.append(group, delivery, fate="retired", reason="no_signal")
        else:
            archive.append(group, delivery, fate="trained", version=5, advantages=np.array([0.7, -0.7], np.float32))
    archive.close()


def lay_run(root: Path, groups: int = 0, *, steps: int = 0) -> Path:
    """A run folder as a finished run leaves it; `steps=0`: one that never began."""
    folder = new_run_folder(load_run("addition"), root, datetime.now(UTC)).resolve()
    lay_model(folder / "model")
    tokenizer = Tokenizer.from_file(str(folder / "model" / "tokenizer.json"))
    tokenizer.decoder = decoders.Fuse()  # type: ignore[assignment]
    tokenizer.save(str(folder / "model" / "tokenizer.json"))
    for version in range(1, steps + 1):
        step: dict[str, Any] = {
            "version": version,
            "at": 1000.0 + version,
            "seconds": 1.0,
            "reward": version / steps,
            "loss": 0.1,
        }
        counts = {"groups": 64, "rollouts": 512, "tokens": 2048, "wait_s": 0.1, "train_s": 0.8, "publish_s": 0.1}
        with (folder / "steps.jsonl").open("a") as file:
            file.write(json.dumps({**step, **counts, "staleness": {"mean": 1.0, "max": 1, "counts": {"1": 64}}}) + "\n")
    if steps:
        goal = {"steps": 400, "staleness": 1, "stop_when": ""}
        counts = {"train.admitted": 100, "train.trained": 90, "train.retired.no_signal": 9, "train.buried": 1}
        kept = {
            "run": folder.name,
            "goal": goal,
            "elapsed_s": 60.0,
            "stage": "finished",
            "version": steps,
            "counts": counts,
        }
        (folder / "snapshot.json").write_text(json.dumps({**kept, "finished": "trained all"}))
    lay_groups(folder, groups) if groups else None
    return folder


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("dashboard") / "runs"


@pytest.fixture(scope="module")
def run(root: Path) -> str:
    return lay_run(root, 130, steps=5).name


@pytest.fixture(scope="module")
def dashboard(root: Path) -> Generator[Dashboard]:
    with Dashboard(root) as started:
        yield started


def found(dashboard: Dashboard, run: str, **words: str) -> dict[str, Any]:
    """Once the archive has been read."""

    def answer() -> dict[str, Any] | None:
        told = dashboard.json(f"/api/runs/{run}/groups?{urlencode(words)}")
        return None if "reading" in told else told

    return until(answer)


def test_every_run_is_listed_with_its_state(dashboard: Dashboard, run: str, root: Path) -> None:
    empty = lay_run(root).name
    rows = {row["run"]: row for row in dashboard.json("/api/runs")}
    assert (rows[run]["state"], rows[run]["version"], rows[run]["reward"]) == ("finished", 5, 1.0)
    assert (rows[empty]["state"], rows[empty]["version"], rows[empty]["curve"]) == ("empty", -1, [])


def test_a_finished_run_is_told_from_its_folder_alone(dashboard: Dashboard, run: str) -> None:
    told = dashboard.json(f"/api/runs/{run}")
    assert told["now"]["finished"] == "trained all"
    assert told["now"]["live"] is False
    assert told["now"]["books"]["train"] == {"admitted": 100, "trained": 90, "retired": 9, "buried": 1, "open": 0}
    assert told["now"]["staleness"]["counts"] == {"1": 320}
    assert [step["version"] for step in told["steps"]] == [1, 2, 3, 4, 5]
    assert "url" not in json.dumps(told["settings"]["all"]["broker"])


def test_an_empty_run_and_one_that_does_not_exist(dashboard: Dashboard, root: Path) -> None:
    told = dashboard.json(f"/api/runs/{lay_run(root).name}")
    assert (told["now"]["stage"], told["now"]["version"], told["steps"], told["history"]) == (
        "has not begun",
        -1,
        [],
        [],
    )
    for name in ("nothing", "..", "%2e%2e%2fetc", "latest"):
        assert dashboard.get(f"/api/runs/{name}")[0] == 404


def test_groups_are_found_by_fate_reward_length_version_and_text(dashboard: Dashboard, run: str) -> None:
    assert found(dashboard, run)["total"] == 130
    assert found(dashboard, run)["fates"] == {"trained": 86, "retired no_signal": 43, "buried": 1}
    assert found(dashboard, run, fate="no_signal")["total"] == 43
    assert (
        found(dashboard, run, fate="trained", reward_min="0.64")["total"]
        == found(dashboard, run, fate="trained", reward_min="0.64", length_max="4")["total"]
        > 0
    )
    assert {row["reward"] for row in found(dashboard, run, reward_max="0.5")["rows"]} == {0.5}
    assert found(dashboard, run, length_min="5")["total"] == found(dashboard, run, version_min="5")["total"] == 0
    assert [row["id"] for row in found(dashboard, run, text="0/77")["rows"]] == ["addition/0/77"]
    lowest = found(dashboard, run, sort="reward")["rows"][0]
    assert lowest["reward"] == min(row["reward"] for row in found(dashboard, run)["rows"])
    assert len(found(dashboard, run, page="2")["rows"]) == 30
    for words in ("sort=nonsense", "reward_min=much", "kind=odd"):
        assert dashboard.get(f"/api/runs/{run}/groups?{words}")[0] == 400


def test_a_group_is_shown_token_by_token(dashboard: Dashboard, run: str) -> None:
    group = dashboard.json(f"/api/runs/{run}/groups/addition/0/1")
    assert (group["fate"], group["trained"], group["prompt"], group["answer"]) == ("trained", 5, "12+34=", "640")
    first, second = group["siblings"]
    assert (first["pieces"], second["pieces"]) == (["6", "4", "0", "</s>"], ["6", "4", "1", "</s>"])
    assert (first["advantage"], second["advantage"]) == (0.7, -0.7)
    assert second["spans"] == [[0, 2, 3], [2, 4, 4]]
    assert second["probabilities"] == [0.9, 0.5, 0.25, 1.0]
    assert dashboard.get(f"/api/runs/{run}/groups/addition/0/999")[0] == 404


def test_a_page_elsewhere_that_points_its_name_here_is_refused(dashboard: Dashboard) -> None:
    status, said = dashboard.get("/api/runs", Host="evil.example:80")
    assert status == 421
    assert "127.0.0.1" in said
    assert dashboard.get("/", Host=f"localhost:{dashboard.port}")[0] == 200


def test_files_outside_the_page_are_not_served(dashboard: Dashboard) -> None:
    for path in ("/static/../server.py", "/static/%2e%2e/server.py", "/static/..%2fserver.py"):
        assert dashboard.get(path)[0] == 404
    assert dashboard.get("/static/main.js")[0] == 200


def test_an_answer_forbids_everything_that_the_page_does_not_need(dashboard: Dashboard) -> None:
    with urlopen(dashboard.address, timeout=10) as answer:
        policy = answer.headers["Content-Security-Policy"]
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert "default-src 'self'" in policy
    assert "unsafe-eval" not in policy
    assert "unsafe-inline" not in policy


def test_another_address_than_loopback_asks_for_the_token_it_printed_and_logs_none(root: Path) -> None:
    with Dashboard(root, "--host", "0.0.0.0") as open_to_all:
        token = open_to_all.address.partition("token=")[2]
        assert len(token) >= 24
        assert open_to_all.get("/health")[0] == 200
        assert open_to_all.get("/api/runs")[0] == 401
        assert open_to_all.get("/api/runs", Authorization=f"Bearer {token[:-1]}")[0] == 401
        assert open_to_all.get("/api/runs", Cookie="tidemill_token=")[0] == 401
        assert open_to_all.get("/api/runs", Authorization=f"Bearer {token}")[0] == 200
        assert open_to_all.get("/api/runs", Cookie=f"tidemill_token={token}")[0] == 200
        assert open_to_all.get(f"/?token={token}")[0] == 303
        assert open_to_all.get("/", Accept="text/html")[0] == 303
        assert open_to_all.text().count(token) == 1, "printed once, and in no log"


def test_a_token_of_ones_own_is_never_shown(root: Path) -> None:
    with Dashboard(root, TIDEMILL_TOKEN="my own words") as guarded:
        assert guarded.get("/api/runs")[0] == 401
        assert guarded.get("/api/runs", Authorization="Bearer my own words")[0] == 200
        assert guarded.get("/runs/x?token=my+own+words")[0] == 303
        assert "own words" not in guarded.text()


def test_a_port_that_is_taken_is_said_with_the_mend(dashboard: Dashboard) -> None:
    command = [sys.executable, "-m", "deploy.cli", "dashboard", "--port", str(dashboard.port)]
    tried = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert tried.returncode == 2
    assert f"port {dashboard.port}" in tried.stderr
    assert "--port 8301" in tried.stderr


async def test_however_many_browsers_watch_a_run_is_looked_at_once_a_second(root: Path, run: str) -> None:
    folder = root / run
    watch = Watch(folder.resolve(), saved_run(folder))
    looks = 0
    look = watch.look

    async def counted() -> dict[str, Any] | None:
        nonlocal looks
        looks += 1
        return await look()

    watch.look = counted  # type: ignore[method-assign]

    async def browser() -> list[str]:
        heard: list[str] = []
        async with contextlib.aclosing(watch.messages()) as messages:
            async for event, _ in messages:
                heard.append(event)
                if len(heard) == 4:
                    break
        return heard

    heard = await asyncio.gather(*(browser() for _ in range(20)))
    await watch.close()
    assert all(one[0] == "whole" and "more" in one for one in heard)
    assert looks <= 8, "four looks, and a first one for the whole"


def test_the_report_is_one_file_in_which_nothing_a_model_wrote_can_act(root: Path, run: str) -> None:
    page = freeze((root / run).resolve(), saved_run(root / run)).read_text()
    assert "/static/" not in page
    assert HOSTILE not in page
    facts = json.loads(page.partition('id="frozen">')[2].partition("</script>")[0])
    assert facts["all"] == 130
    assert facts["whole_groups"]["addition/0/129"]["prompt"] == HOSTILE
    assert {row["fate"] for row in facts["groups"]} == {"trained", "retired", "buried"}


def test_a_report_with_room_for_few_groups_has_some_of_every_fate(
    root: Path, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frozen, "MOST_BYTES", 3000)
    kept = frozen.groups_of((root / run).resolve(), saved_run(root / run))
    assert len(kept["groups"]) < 10
    assert {row["fate"] for row in kept["groups"]} == {"trained", "retired", "buried"}
    assert kept["fates"] == {"trained": 86, "retired no_signal": 43, "buried": 1}
