"""`tidemill doctor`: what a machine lacks is found, graded and given a mend; what is there is named."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from pathlib import Path

import pytest

from broker import embedded_server
from deploy import doctor, installation
from deploy.examined import Examined
from deploy.installation import accelerator, import_clashes, pinned, pins
from tests.command_line import tidemill


def test_a_server_that_is_given_is_reached_and_its_clock_compared(tmp_path: Path) -> None:
    with embedded_server.serving(tmp_path / "redis") as url:
        answer = tidemill("doctor", "--json", runs=tmp_path, TIDEMILL_BROKER_URL=url)
    assert answer.returncode == 0, answer.stdout
    found = {one["what"]: one for one in json.loads(answer.stdout)}
    assert set(found["its clock"]) == {"what", "found", "grade", "mend"}
    assert found["its clock"]["grade"] == "ok" and found["its clock"]["found"].endswith("this host's")
    for what in ("python", "memory", "disk", "shared memory", "open files", "import names", "pinned versions", "GPUs"):
        assert found[what]["grade"] in ("ok", "look"), found[what]


def test_a_server_that_evicts_is_bad_and_said_how_to_mend(tmp_path: Path) -> None:
    with embedded_server.serving(tmp_path / "redis") as url:
        assert doctor.ask(url, ["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"])
        (found,) = list(doctor.given_server(url))
    assert found.grade == "bad"
    assert "CONFIG SET maxmemory-policy noeviction" in found.mend


def test_a_clock_that_is_off_is_worth_a_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with embedded_server.serving(tmp_path / "redis") as url:
        real = doctor.time.time
        monkeypatch.setattr(doctor.time, "time", lambda: real() - 60)
        found = doctor.clock_of(url)
    assert found.grade == "look" and found.found.startswith("60.0") and "ahead of" in found.found


def test_versions_other_than_those_pinned_are_named(tmp_path: Path) -> None:
    (tmp_path / "cpu.lock").write_text(
        "# Made by\ntorch==2.13.0\nredis==1.0 ; python_version < '4'\nno-such-thing==3\n"
    )
    wanted = pins(tmp_path)
    assert wanted == {"torch": "2.13.0", "redis": "1.0", "no-such-thing": "3"}
    found = pinned(wanted)
    assert found.grade == "look"
    assert "no-such-thing missing (pinned 3)" in found.found and "(pinned 1.0)" in found.found
    assert "torch" not in found.found, "+cpu is the same version"
    assert pinned({}).grade == "ok"


def test_a_distribution_that_brings_a_package_of_our_name_is_bad(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert import_clashes().grade == "ok"
    stranger = tmp_path / "kafka_broker-1.0.dist-info"
    stranger.mkdir()
    (stranger / "METADATA").write_text("Metadata-Version: 2.1\nName: kafka-broker\nVersion: 1.0\n")
    (stranger / "top_level.txt").write_text("broker\n")
    (stranger / "RECORD").write_text("broker/__init__.py,,\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = import_clashes()
    assert found.grade == "bad"
    assert "`broker` is also in kafka-broker" in found.found


def test_a_folder_that_shadows_a_package_of_ours_is_bad(tmp_path: Path) -> None:
    (tmp_path / "scheduler").mkdir()
    (tmp_path / "scheduler" / "__init__.py").write_text("")
    program = f"import sys; sys.path.insert(0, {str(Path(installation.__file__).parents[1])!r})\n"
    program += "from deploy.installation import strangers\n"
    program += f"sys.path.insert(0, {str(tmp_path)!r}); sys.modules.pop('scheduler', None); print(list(strangers()))"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert "scheduler" in said and str(tmp_path) in said


class Driver:
    """A driver library that says so; the real one is asked on machines with GPUs only."""

    def __init__(self, number: int) -> None:
        self.number = number

    def cuDriverGetVersion(self, place: object) -> int:  # noqa: N802  its name
        ctypes.cast(place, ctypes.POINTER(ctypes.c_int))[0] = self.number  # type: ignore[arg-type]
        return 0


@pytest.mark.parametrize(
    ("built_for", "driver", "grade"),
    [
        ((12, 8), 12080, "ok"),
        ((12, 8), 13000, "ok"),
        ((12, 8), 12040, "look"),
        ((13, 0), 12080, "bad"),
        (None, 12080, "bad"),
    ],
)
def test_torchs_cuda_is_held_against_the_drivers(
    built_for: tuple[int, int] | None, driver: int, grade: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installation, "gpus_of_the_machine", lambda: 2)
    monkeypatch.setattr(installation, "torch_cuda", lambda: built_for)
    monkeypatch.setattr(installation.ctypes, "CDLL", lambda _: Driver(driver))
    gpus, cuda = list(accelerator())
    assert (gpus.found, cuda.grade) == ("2", grade)


def test_without_a_driver_library_gpus_are_of_no_use(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(_: str) -> None:
        raise OSError("libcuda.so.1: cannot open shared object file")

    monkeypatch.setattr(installation, "gpus_of_the_machine", lambda: 1)
    monkeypatch.setattr(installation, "torch_cuda", lambda: (12, 8))
    monkeypatch.setattr(installation.ctypes, "CDLL", absent)
    mend = "install NVIDIA's driver, or let the container see it (libcuda.so.1)"
    assert list(accelerator())[1] == Examined(what="CUDA", found="no driver library", grade="bad", mend=mend)


def test_a_folder_that_cannot_be_written_or_is_full_is_bad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.os, "access", lambda *_: False)
    assert doctor.disk(tmp_path / "runs").found == f"{tmp_path} cannot be written"
    monkeypatch.undo()
    monkeypatch.setattr(doctor, "FREE_GB", 10**6)
    assert doctor.disk(tmp_path / "runs").grade == "bad"
