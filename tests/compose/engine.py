"""A Docker engine for a test: the machine's own if one answers, else one started for the test and removed after it.

For: `tests/compose`. Not for: what runs on it. A machine that has no engine gets Debian's, and one that reaches no
image registry gets stand-ins: Debian 12 with Python and Redis in it, under the very names that the shipped files use,
so that these run unchanged. Everything lies in one temporary folder.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path

BASES = ("python:3.11-slim-bookworm", "redis:8.2-bookworm")
PACKAGES = {"dockerd": "docker.io", "debootstrap": "debootstrap", "iptables": "iptables"}
INSIDE = "python3,python3-venv,python3-pip,ca-certificates,redis-server"
NETWORK = "10.213.0.1/24"
TABLES = {"filter": ("INPUT", "FORWARD", "OUTPUT"), "nat": ("PREROUTING", "INPUT", "OUTPUT", "POSTROUTING")}
FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")
WEIGHT = Path("/sys/fs/cgroup/cpu/docker/cpu.shares")
"""Of all containers together; beside others' processes they would have that of a single one."""


class NoEngine(Exception):
    """None is here and none can be had; the reason in words."""


def done(argv: Sequence[str | Path], env: Mapping[str, str] | None = None, within_s: float = 600) -> str:
    """What a command prints. Raises NoEngine with the end of what it said when it fails."""
    ran = subprocess.run(
        [*map(str, argv)],
        env=env or with_sbin(),
        capture_output=True,
        text=True,
        timeout=within_s,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if ran.returncode:
        raise NoEngine(f"{' '.join(map(str, argv[:4]))}: {(ran.stderr or ran.stdout).strip()[-400:]}")
    return ran.stdout


def has(image: str, env: Mapping[str, str]) -> None:
    """The image is here, or can be fetched. Raises NoEngine."""
    with contextlib.suppress(NoEngine):
        done(["docker", "image", "inspect", image], env)
        return
    done(["docker", "pull", "-q", image], env)


def client(folder: Path) -> dict[str, str]:
    """The environment in which `docker compose` can be typed, whether an engine answers or not. Raises NoEngine."""
    if not shutil.which("docker", path=with_sbin()["PATH"]):
        install()
    with contextlib.suppress(NoEngine):
        done(["docker", "compose", "version"])
        return with_sbin()
    env = {**with_sbin(), "DOCKER_CONFIG": str(folder / "config")}
    plugin(folder, folder / "config", env)
    return env


@contextlib.contextmanager
def engine(folder: Path, env: Mapping[str, str]) -> Generator[dict[str, str]]:
    """The environment in which `docker compose` works; `env`: a client's. Raises NoEngine."""
    with contextlib.suppress(NoEngine):
        done(["docker", "info"], env)
        for base in BASES:
            has(base, env)
        yield dict(env)
        return
    if os.geteuid():
        raise NoEngine("no Docker engine answers that can pull the base images, and only root could start one")
    with started(folder, env) as ours:
        yield ours


@contextlib.contextmanager
def started(folder: Path, client: Mapping[str, str]) -> Generator[dict[str, str]]:
    """Our own engine with stand-ins for the base images. Its network rules go with it."""
    install()
    env = {**client, "DOCKER_HOST": f"unix://{folder}/docker.sock"}
    rules, forwarding = done(["iptables-save"]), FORWARDING.read_text()
    with (folder / "dockerd.log").open("wb") as said:
        places = ["--data-root", folder / "data", "--exec-root", folder / "exec", "--pidfile", folder / "dockerd.pid"]
        argv = ["dockerd", *places, "-H", env["DOCKER_HOST"], "--bip", NETWORK]
        process = subprocess.Popen([*map(str, argv)], env=env, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
    try:
        answers(process, env, folder)
        with contextlib.suppress(OSError):  # another kind of cgroup, or none
            WEIGHT.parent.mkdir(exist_ok=True)
            WEIGHT.write_text("10240")
        stand_in(folder, env)
        yield env
    finally:
        subprocess.run(
            ["sh", "-c", "docker rm -f $(docker ps -aq); docker network prune -f"],
            env=env,
            capture_output=True,
            check=False,
        )
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)
        tidy(folder, rules, forwarding)


def install() -> None:
    """Debian's packages, where they are missing and this may be mended (`APT=1`, as for `deploy/setup.sh`)."""
    missing = [package for program, package in PACKAGES.items() if not shutil.which(program, path=with_sbin()["PATH"])]
    if not missing:
        return
    if os.environ.get("APT") != "1":
        raise NoEngine(f"no Docker engine; `apt-get install {' '.join(missing)}` brings one (APT=1 does so here)")
    done(["apt-get", "update", "-q"])
    env = {**with_sbin(), "DEBIAN_FRONTEND": "noninteractive"}
    done(["apt-get", "install", "-y", "-q", "--no-install-recommends", *missing], env)


def with_sbin() -> dict[str, str]:
    """Our environment, where an administrator's programs are found too."""
    return {**os.environ, "PATH": os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])}


def plugin(folder: Path, config: Path, env: Mapping[str, str]) -> None:
    """`docker compose`: Debian 12 has only its predecessor, so the one file is taken out of Debian 13's package."""
    (config / "cli-plugins").mkdir(parents=True)
    apt = folder / "apt"
    for place in ("lists/partial", "cache/archives/partial"):
        (apt / place).mkdir(parents=True)
    sources = Path("/etc/apt/sources.list.d/debian.sources")
    if not sources.is_file():
        raise NoEngine("no `docker compose` here, and no Debian sources to take it from")
    first = sources.read_text().split("\n\n")[0].splitlines()
    (apt / "one.sources").write_text(
        "\n".join("Suites: trixie" if line.startswith("Suites:") else line for line in first) + "\n"
    )
    options = {
        "Dir::Etc::sourcelist": apt / "one.sources",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State::lists": apt / "lists",
        "Dir::Cache": apt / "cache",
        "APT::Sandbox::User": "root",
    }
    words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    done(["apt-get", *words, "update", "-q"])
    done(["sh", "-c", f'cd {apt} && exec apt-get "$@" download -q docker-compose', "sh", *words])
    done(["dpkg", "-x", *apt.glob("docker-compose_*.deb"), apt / "package"])
    found = next((apt / "package").rglob("cli-plugins/docker-compose"))
    shutil.copy(found, config / "cli-plugins" / "docker-compose")
    done(["docker", "compose", "version"], env)


def answers(process: subprocess.Popen[bytes], env: Mapping[str, str], folder: Path, within_s: float = 60) -> None:
    """Wait for the engine. Raises NoEngine with the end of its log when it cannot be had here."""
    by = time.monotonic() + within_s
    while time.monotonic() < by and process.poll() is None:
        with contextlib.suppress(NoEngine):
            done(["docker", "info"], env)
            return
        time.sleep(0.2)
    raise NoEngine(f"dockerd does not come up here: {(folder / 'dockerd.log').read_text()[-400:]}")


def stand_in(folder: Path, env: Mapping[str, str]) -> None:
    """Images under the names of the real ones: Debian's own Python and Redis, and where this machine finds packages."""
    root = folder / "root"
    done(["debootstrap", "--variant=minbase", f"--include={INSIDE}", "bookworm", root])
    said: dict[str, str] = {}
    if authority := os.environ.get("SSL_CERT_FILE"):
        shutil.copy(authority, root / "authority.crt")
        said |= dict.fromkeys(("SSL_CERT_FILE", "PIP_CERT"), "/authority.crt")
    if (wheels := os.environ.get("PIP_FIND_LINKS", "")) and Path(wheels).is_dir():
        shutil.copytree(wheels, root / "wheels")
        said["PIP_FIND_LINKS"] = "/wheels"
    said |= {name: os.environ[name] for name in ("PIP_INDEX_URL", "UV_DEFAULT_INDEX") if name in os.environ}
    done(["chroot", root, "install", "-d", "-o", "redis", "-g", "redis", "/data"])  # as in the image that it stands for
    words = " ".join(f"{name}={value}" for name, value in said.items())
    done(["sh", "-c", f'tar -C {root} -c . | docker import {"--change" if words else ""} "$@" - {BASES[0]}', "sh",
          *([f"ENV {words}"] if words else [])], env)  # fmt: skip
    shutil.rmtree(root)
    for base in BASES[1:]:
        done(["docker", "tag", BASES[0], base], env)


def tidy(folder: Path, rules: str, forwarding: str) -> None:
    """Nothing of the engine stays: no bridge, no mount, no network rule."""
    subprocess.run(["ip", "link", "del", "docker0"], env=with_sbin(), capture_output=True, check=False)
    for mount in Path("/proc/mounts").read_text().splitlines():
        if (place := mount.split()[1]).startswith(str(folder)):
            subprocess.run(["umount", "-l", place], capture_output=True, check=False)
    missing = [table for table in TABLES if f"*{table}\n" not in rules]
    empty = "".join(
        f"*{table}\n" + "".join(f":{chain} ACCEPT [0:0]\n" for chain in TABLES[table]) + "COMMIT\n" for table in missing
    )
    subprocess.run(
        ["iptables-restore"], env=with_sbin(), input=rules + empty, text=True, capture_output=True, check=False
    )
    FORWARDING.write_text(forwarding)
    shutil.rmtree(folder, ignore_errors=True)
