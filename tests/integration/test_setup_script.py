"""The installer: what it checks first, where it looks for torch and in which order, and what it leaves alone.

The script is the real one. Where a whole installation would take minutes or another machine, it is a dry run, or uv is
a recorder that refuses the torch builds it is told to.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLACES = ["what this machine is configured with", "TORCH_INDEX=", "PyTorch's own index", "the CUDA build\n"]
DEADLINE_S = 60


@dataclass
class Machine:
    """A checkout of its own with programs of its own in front of PATH."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def venv(self) -> Path:
        return self.folder / ".venv"

    def program(self, path: Path, script: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/bash\n{script}\n")
        path.chmod(0o755)

    def on_path(self, name: str, script: str) -> None:
        self.program(self.folder / "bin" / name, script)

    def has_environment(self, refusing: str) -> None:
        """An environment as far as uv: what uv is asked goes to uv.log, and what matches `refusing` fails."""
        (self.venv / "bin").mkdir(parents=True)
        (self.venv / "bin/python").symlink_to(sys.executable)
        (self.venv / "tidemill-installed").write_text("device cpu\n")
        log = self.folder / "uv.log"
        self.program(self.venv / "bin/uv", f'echo "$*" >>{log}\n[[ "$*" =~ {refusing} ]] && exit 1\nexit 0')

    def asked_of_uv(self) -> list[str]:
        log = self.folder / "uv.log"
        return log.read_text().splitlines() if log.exists() else []

    def start(self, **settings: str) -> subprocess.Popen[str]:
        environment = {"PATH": f"{self.folder}/bin:{os.environ['PATH']}", "HOME": str(self.folder), **self.environment}
        return subprocess.Popen(
            ["bash", "deploy/setup.sh"],
            cwd=self.folder,
            env=environment | settings,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def finish(self, **settings: str) -> tuple[int, str]:
        process = self.start(**settings)
        output, _ = process.communicate(timeout=DEADLINE_S)
        return process.returncode, output

    def setup(self, **settings: str) -> str:
        code, output = self.finish(**settings)
        assert code == 0, output
        return output

    def refusal(self, **settings: str) -> str:
        code, output = self.finish(**settings)
        assert code == 1, output
        return output

    def plan(self, **settings: str) -> str:
        return self.setup(DRY_RUN="1", **settings)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A CPU machine on which nothing is installed yet."""
    for name in ("deploy", "bin"):
        (tmp_path / name).mkdir()
    shutil.copy(ROOT / "deploy/setup.sh", tmp_path / "deploy/setup.sh")
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    here = Machine(tmp_path, {"PYTHON": sys.executable})
    here.on_path("nvidia-smi", "exit 9")
    return here


def places_tried(output: str) -> list[str]:
    return sorted((place for place in PLACES if place in output), key=output.index)


def test_torch_is_looked_for_on_the_machine_then_at_pytorch_and_last_as_the_cuda_build(machine: Machine) -> None:
    output = machine.plan()
    assert places_tried(output) == [PLACES[0], PLACES[2], PLACES[3]]
    assert "4.7 GB" in output
    assert not machine.venv.exists()


def test_an_index_that_is_named_is_tried_second(machine: Machine) -> None:
    output = machine.plan(TORCH_INDEX="https://wheels.example/cpu")
    assert places_tried(output) == PLACES
    assert "--index https://wheels.example/cpu torch==2.13.0+cpu" in output


@pytest.mark.parametrize(
    ("refusing", "place"),
    [
        ("nothing", "the CPU build, from what this machine is configured with"),
        (r"--no-deps\ torch==.*cpu", "the CPU build, from TORCH_INDEX=https://wheels.example/cpu"),
        (r"torch==2.13.0\+cpu", "the CPU build, from PyTorch's own index"),
        (r"torch==2.13.0\+cpu|torch-backend", "the CUDA build"),
    ],
)
def test_the_first_place_that_has_torch_is_taken_and_named(machine: Machine, refusing: str, place: str) -> None:
    machine.has_environment(refusing)
    machine.on_path("df", 'echo head; echo "disk 1 1 99999999 1% /"')
    output = machine.setup(TORCH_INDEX="https://wheels.example/cpu")
    assert f"torch: took {place}\n" in output
    assert sum("torch==" in line for line in machine.asked_of_uv()) == len(places_tried(output))


def test_when_no_torch_can_be_had_it_says_so_and_goes_on_from_there_next_time(machine: Machine) -> None:
    machine.has_environment("torch==")
    assert "torch could not be installed" in machine.refusal()
    assert not any("cpu.lock" in line for line in machine.asked_of_uv())
    machine.program(machine.venv / "bin/uv", "exit 0")
    assert "ready in" in machine.setup()


def test_everything_is_installed_from_flat_locks_and_the_project_last(machine: Machine) -> None:
    machine.has_environment("nothing")
    machine.setup(DEV="1", SMOLLM2="1")
    asked = machine.asked_of_uv()
    assert all("--no-deps" in line for line in asked)
    assert [line.split()[-1] for line in asked] == [
        "torch==2.13.0+cpu",
        "requirements/cpu.lock",
        "requirements/cpu-vllm.lock",
        "requirements/dev.lock",
        "requirements/smollm2.lock",
        ".",
    ]


def test_vllm_can_be_left_out(machine: Machine) -> None:
    assert "cpu-vllm.lock" in machine.plan()
    assert "cpu-vllm.lock" not in machine.plan(VLLM="0")


def test_a_gpu_machine_takes_the_gpu_lock_alone(machine: Machine) -> None:
    machine.on_path("nvidia-smi", 'echo "GPU 0: one of them"')
    machine.on_path("df", 'echo head; echo "disk 1 1 99999999 1% /"')
    for output in (machine.plan(), machine.plan(DEVICE="gpu")):
        assert "-r requirements/gpu.lock" in output
        assert "cpu" not in output
        assert places_tried(output) == []
    assert "-r requirements/cpu.lock" in machine.plan(DEVICE="cpu")


def test_what_pip_was_told_is_told_to_uv_unless_uv_was_told_itself(machine: Machine) -> None:
    output = machine.plan(
        PIP_FIND_LINKS="/wheels /more", PIP_INDEX_URL="https://mirror.example", UV_DEFAULT_INDEX="mine"
    )
    assert "UV_FIND_LINKS=/wheels,/more (from PIP_FIND_LINKS)" in output
    assert "UV_DEFAULT_INDEX" not in output


def test_a_second_run_does_nothing_and_says_nothing(machine: Machine) -> None:
    machine.has_environment("nothing")
    machine.setup()
    done = machine.asked_of_uv()
    assert machine.setup() == ""
    assert machine.asked_of_uv() == done


def test_only_the_lock_that_changed_is_installed_again(machine: Machine) -> None:
    machine.has_environment("nothing")
    machine.setup()
    done = len(machine.asked_of_uv())
    with (machine.folder / "requirements/cpu.lock").open("a") as lock:
        lock.write("one-more==1.0\n")
    machine.setup()
    assert [line.split()[-1] for line in machine.asked_of_uv()[done:]] == ["requirements/cpu.lock"]


def test_another_device_means_another_environment(machine: Machine) -> None:
    machine.has_environment("nothing")
    machine.on_path("df", 'echo head; echo "disk 1 1 99999999 1% /"')
    assert "-m venv --clear" in machine.plan(DEVICE="gpu")
    assert "-m venv" not in machine.plan(DEVICE="cpu")


def test_several_at_once_install_each_part_once(machine: Machine) -> None:
    machine.has_environment("nothing")
    together = [machine.start() for _ in range(4)]
    for process in together:
        output, _ = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 0, output
    asked = machine.asked_of_uv()
    assert sorted(asked) == sorted(set(asked))


def test_a_python_that_is_too_old_stops_it_with_the_line_to_type(machine: Machine) -> None:
    machine.on_path(
        "python3", '[ "$1" = --version ] && echo "Python 3.9.2"; [[ "$2" =~ version_info ]] && exit 1; exit 0'
    )
    output = machine.refusal(PYTHON="python3")
    assert "python3 is Python 3.9.2; Python 3.11 to 3.14 is needed; nothing was installed" in output
    assert "apt-get install -y python3 python3-venv" in output
    assert not machine.venv.exists()


def test_no_python_at_all_stops_it_with_the_line_to_type(machine: Machine) -> None:
    output = machine.refusal(PYTHON="python-of-nobody")
    assert "there is no python-of-nobody here" in output
    assert "apt-get install -y python3" in output


def without(module: str) -> str:
    """Script of a python3 that lacks `module`."""
    return f'[[ "$2" =~ {module} ]] && exit 1; exec {sys.executable} "$@"'


@pytest.mark.parametrize(
    ("lacking", "package"), [("ensurepip", "python3-venv"), ("Python.h", "python3-dev"), ("libnuma", "libnuma1")]
)
def test_a_missing_debian_package_is_named_before_anything_is_written(
    machine: Machine, lacking: str, package: str
) -> None:
    machine.on_path("python3", without(lacking))
    output = machine.refusal(PYTHON="python3")
    assert f"apt-get install -y {package}\n" in output
    assert not machine.venv.exists()


def test_missing_debian_packages_are_installed_when_asked_to(machine: Machine) -> None:
    machine.on_path("python3", without("ensurepip"))
    output = machine.plan(PYTHON="python3", APT="1")
    assert "apt-get install -y -q --no-install-recommends python3-venv" in output
    assert output.index("apt-get install") < output.index("-m venv")


def test_without_vllm_its_system_library_is_not_asked_for(machine: Machine) -> None:
    machine.on_path("python3", without("libnuma"))
    assert "apt-get" not in machine.plan(PYTHON="python3", VLLM="0")


def test_a_disk_that_is_too_small_stops_it_with_both_numbers(machine: Machine) -> None:
    machine.on_path("df", 'echo head; echo "disk 1 1 2097152 99% /"')
    output = machine.refusal()
    assert "2 GB are free" in output
    assert "4 GB are needed; nothing was installed" in output
    assert not machine.venv.exists()


def test_the_cuda_build_is_not_fetched_onto_a_disk_without_room_and_the_cpu_build_can_be_chosen(
    machine: Machine,
) -> None:
    machine.has_environment(r"torch==2.13.0\+cpu|torch-backend")
    machine.on_path("df", 'echo head; echo "disk 1 1 9437184 99% /"')
    output = machine.refusal()
    assert "9 GB are free in ., 12 GB are needed; the CUDA build of torch was not fetched" in output
    assert "set UV_FIND_LINKS to a folder that holds torch-2.13.0+cpu, or TORCH_INDEX to" in output
    assert places_tried(output) == [PLACES[0], PLACES[2]]
    assert "torch==2.13.0" not in [line.split()[-1] for line in machine.asked_of_uv()[2:]]


def test_whoever_reads_a_pipe_hears_now_and_then_that_a_long_part_goes_on(machine: Machine) -> None:
    machine.has_environment("nothing")
    machine.program(machine.venv / "bin/uv", '[[ "$*" =~ cpu.lock ]] && sleep 2.5; exit 0')
    lines = machine.setup(SAY_EVERY="1").splitlines()
    signs = [place for place, line in enumerate(lines) if line.startswith("setup: still at it, for ")]
    assert len(signs) in (1, 2), lines
    assert all("requirements/cpu.lock" in lines[min(signs) - 1] for _ in signs), lines


def test_a_quick_part_gives_no_sign_and_is_not_waited_for(machine: Machine) -> None:
    machine.has_environment("nothing")
    assert "still at it" not in machine.setup(SAY_EVERY=str(10 * DEADLINE_S))


def test_an_unknown_device_is_refused(machine: Machine) -> None:
    assert "DEVICE=tpu is none of auto, cpu, gpu" in machine.refusal(DEVICE="tpu")
