"""A Slurm cluster for a test: Debian's own daemons on loopback, two nodes of this one machine, in a temporary folder.

For: `test_slurm`. Not for: what is submitted to it. It needs no munge; its GPUs are device files that are none, which
Slurm counts and hands out like real ones.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Generator, Mapping
from pathlib import Path

import pytest

from tests.integration.test_launcher import until

ROOT = Path(__file__).parents[2]
NODES = ("one", "two")
CPUS = 8
GPUS = 8
PROGRAMS = ("slurmctld", "slurmd", "sbatch", "srun", "scancel", "scontrol")
SBIN = f"{os.environ['PATH']}:/usr/sbin:/sbin"


def free_ports(number: int) -> list[int]:
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(number)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def devices(folder: Path) -> str:
    """Lines that give each node its GPUs; none where no device file may be made."""
    try:
        for number in range(GPUS):
            os.mknod(folder / f"nvidia{number}", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    except PermissionError:
        return ""
    return f"Name=gpu File={folder}/nvidia[0-{GPUS - 1}]\n"


def configuration(folder: Path, host: str, gpus: str) -> str:
    control, *nodes = free_ports(1 + len(NODES))
    told = {
        "ClusterName": "tidemill",
        "SlurmctldHost": f"{host}(127.0.0.1)",
        "SlurmctldPort": control,
        "SlurmUser": "root",
        "AuthType": "auth/none",
        "CredType": "cred/none",
        "StateSaveLocation": folder / "state",
        "SlurmdSpoolDir": folder / "spool-%n",
        "SlurmctldPidFile": folder / "slurmctld.pid",
        "SlurmdPidFile": folder / "slurmd-%n.pid",
        "ProctrackType": "proctrack/linuxproc",
        "TaskPlugin": "task/none",
        "MpiDefault": "none",
        "SwitchType": "switch/none",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core",
        "SlurmdParameters": "config_overrides",
        "JobAcctGatherType": "jobacct_gather/none",
        "AccountingStorageType": "accounting_storage/none",
        "GresTypes": "gpu",
    }
    own = f"CPUs={CPUS} " + (f"Gres=gpu:{GPUS}" if gpus else "")
    lines = [f"{name}={value}" for name, value in told.items()]
    lines += [
        f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} {own}"
        for node, port in zip(NODES, nodes, strict=True)
    ]
    return "\n".join([*lines, "PartitionName=all Nodes=ALL Default=YES State=UP", ""])


class Slurm:
    """Its commands, as a user types them in the checkout."""

    def __init__(self, folder: Path, has_gpus: bool) -> None:
        self.folder, self.has_gpus = folder, has_gpus
        path = f"{Path(sys.executable).parent}:{SBIN}"
        self.environment = {**os.environ, "PATH": path, "SLURM_CONF": str(folder / "slurm.conf")}

    def type(self, *words: str, **environment: str) -> str:
        done = subprocess.run(
            words, env={**self.environment, **environment}, cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{' '.join(words)}: {done.stdout}{done.stderr}{self.logs()}"
        return done.stdout

    def logs(self) -> str:
        return "".join(f"\n== {path.name}\n{path.read_text()[-2000:]}" for path in self.folder.glob("*.out"))

    def facts(self, job: str) -> Mapping[str, str]:
        said = self.type("scontrol", "show", "job", "--oneliner", job)
        return {name: value for name, _, value in (word.partition("=") for word in said.split())}

    def clear(self) -> None:
        """No job is left, nor runs."""
        self.type("scancel", "--user=root")
        until(lambda: not self.type("squeue", "--noheader"), 60)

    def is_up(self) -> bool:
        asked = ["sinfo", "--noheader", "--Node", "--format=%N %T"]
        said = subprocess.run(asked, env=self.environment, capture_output=True, text=True, check=False).stdout
        return sorted(said.splitlines()) == [f"{node} idle" for node in NODES]


@contextlib.contextmanager
def slurm_cluster(folder: Path) -> Generator[Slurm]:
    """Skips where Slurm is not installed, or may not be started."""
    if missing := [program for program in PROGRAMS if not shutil.which(program, path=SBIN)]:
        pytest.skip(f"Slurm is not installed ({', '.join(missing)}), so its file is not run; apt-get install slurm-wlm")
    if os.geteuid() != 0:
        pytest.skip("only root may start Slurm's daemons, so its file is not run")
    gpus = devices(folder)
    host = socket.gethostname().partition(".")[0]
    (folder / "slurm.conf").write_text(configuration(folder, host, gpus))
    (folder / "gres.conf").write_text(gpus)
    (folder / "state").mkdir()
    slurm = Slurm(folder, bool(gpus))
    daemons: list[subprocess.Popen[bytes]] = []
    try:
        for words in (["slurmctld", "-D"], *(["slurmd", "-D", "-N", node] for node in NODES)):
            with (folder / f"{'-'.join(words)}.out").open("wb") as said:
                daemons.append(subprocess.Popen(words, env=slurm.environment, stdout=said, stderr=said))
        until(slurm.is_up, 20)
        yield slurm
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
            daemon.wait(30)
