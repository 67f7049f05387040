"""Run folders under ten launches at once, and found again by name."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from broker.errors import Misconfigured
from broker.settings import RUN_SETTINGS_FILE
from deploy.dashboard.desk import Desk
from deploy.run_check import load_run, saved_run
from deploy.run_folder import find_run, launcher_pid, launching, new_run_folder, run_folders
from tests.command_line import tidemill

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_ten_launches_at_once_get_ten_folders(tmp_path: Path) -> None:
    program = (
        "from datetime import datetime; from pathlib import Path; from deploy.run_check import load_run; "
        "from deploy.run_folder import new_run_folder; "
        f"print(new_run_folder(load_run('addition'), Path({str(tmp_path)!r}), datetime(2026, 1, 2, 3, 4, 5)).name)"
    )
    launches = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) for _ in range(10)]
    names = {launch.communicate(timeout=30)[0].strip() for launch in launches}
    assert len(names) == 10
    assert {folder.name for folder in run_folders(tmp_path)} == names
    assert all(saved_run(folder) for folder in run_folders(tmp_path))
    assert (tmp_path / "latest").resolve().name in names


def test_a_run_is_found_by_name_path_and_as_the_latest(tmp_path: Path) -> None:
    first = new_run_folder(load_run("addition"), tmp_path, NOW)
    second = new_run_folder(load_run("addition"), tmp_path, NOW)
    assert (first.name, second.name) == ("addition-20260102-030405", "addition-20260102-030405-2")
    assert (
        find_run("latest", tmp_path)
        == find_run(second.name, tmp_path)
        == find_run(str(second), tmp_path)
        == second.resolve()
    )


def test_an_unknown_run_is_answered_with_the_nearest(tmp_path: Path) -> None:
    new_run_folder(load_run("addition"), tmp_path, NOW)
    with pytest.raises(Misconfigured, match=r'did you mean "addition-20260102-030405"\?'):
        find_run("addition-2026", tmp_path)
    with pytest.raises(Misconfigured, match="tidemill run addition"):
        find_run("latest", tmp_path / "empty")


def test_a_run_is_looked_at_where_its_reward_is_not_and_nobody_goes_on_with_it(tmp_path: Path) -> None:
    folder = new_run_folder(load_run("addition"), tmp_path, NOW)
    settings = (folder / RUN_SETTINGS_FILE).read_text()
    (folder / RUN_SETTINGS_FILE).write_text(settings.replace("exact_match", "of_another_host:rule"))
    for command in ("status", "report"):
        looked = tidemill(command, runs=tmp_path)
        assert looked.returncode == 0, looked.stderr
    assert Desk(tmp_path).watch(folder.name) is not None, "the dashboard opens it"
    refused = tidemill("resume", runs=tmp_path)
    assert refused.returncode == 2
    assert '"of_another_host:rule" leads nowhere; nothing was started' in refused.stderr


def test_a_folder_that_cannot_be_made_is_one_clear_message(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(Misconfigured, match="no run folder can be made"):
        new_run_folder(load_run("addition"), tmp_path / "runs", NOW)


def test_a_run_has_one_launcher_at_a_time(tmp_path: Path) -> None:
    folder = new_run_folder(load_run("addition"), tmp_path, NOW)
    assert launcher_pid(folder) is None
    program = (
        "from pathlib import Path; from deploy.run_folder import launching; import time\n"
        f"with launching(Path({str(folder)!r})): print('ready', flush=True); time.sleep(60)"
    )
    other = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    try:
        other.stdout.readline()
        assert launcher_pid(folder) == other.pid
        with pytest.raises(Misconfigured, match=f"by process {other.pid}"), launching(folder):
            pass
    finally:
        other.kill()
        other.communicate()
    with launching(folder):
        pass
