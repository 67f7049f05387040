"""Paths that the server names stay inside the store and beside the runs; no file and no entry is ever unpickled."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from broker import embedded_server
from broker.errors import Broken, Misconfigured
from broker.fleet import Served
from broker.settings import RUNS_VARIABLE
from broker.weights import VersionStore
from scheduler.celery_fleet import application
from scheduler.served_run import ServedRun

ROOT = Path(__file__).parents[2]
PACKAGES = ("broker", "producers", "consumers", "scheduler", "deploy")

EXECUTING = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "joblib"}
"""Modules whose readers run what they read."""
EXECUTING_CALLS = {
    "eval",
    "exec",
    "compile",
    "os.system",
    "yaml.load",
    "np.load",
    "numpy.load",
    "torch.load",
    "pd.read_pickle",
}


@pytest.mark.parametrize(
    "path",
    ["../../etc", "/etc", "versions/../../etc", "versions/000001-e001/../../..", "versions", "", "epochs/000001",
     "versions/000001-e001/", "versions/000001-e001\0", "versions/٣-e1", ".", "models/000001-e001"],
)  # fmt: skip
def test_no_path_leads_out_of_the_store(tmp_path: Path, path: str) -> None:
    store = VersionStore(tmp_path / "store")
    for act in (store.folder, store.delete, store.drop_tensors):
        with pytest.raises(Broken, match="names nothing in the store"):
            act(path)


def test_no_link_leads_out_of_the_store(tmp_path: Path) -> None:
    store = VersionStore(tmp_path / "store")
    (tmp_path / "elsewhere").mkdir()
    (store.root / "versions" / "000001-e001").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Broken, match="names nothing in the store"):
        store.folder("versions/000001-e001")


def test_a_store_that_is_itself_a_link_is_a_store(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "store").symlink_to(tmp_path / "disk")
    assert VersionStore(tmp_path / "store").folder("versions/000001-e001") == tmp_path / "store/versions/000001-e001"


def test_slots_work_for_no_run_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RUNS_VARIABLE, str(tmp_path / "runs"))
    for folder in (tmp_path / "evil", tmp_path / "runs" / ".." / "evil", Path("/")):
        with pytest.raises(Misconfigured, match="which is not in TIDEMILL_RUNS"):
            ServedRun.read(Served(run="run", folder=str(folder), url="redis://h"))
    with pytest.raises(Misconfigured, match=r"holds no settings\.json"):
        ServedRun.read(Served(run="run", folder=str(tmp_path / "runs" / "one"), url="redis://h"))


def test_a_short_socket_lies_where_nobody_else_can_put_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    place = embedded_server.own_folder()
    assert (place.stat().st_mode & 0o777, embedded_server.own_folder()) == (0o700, place)
    place.chmod(0o777)
    with pytest.raises(Misconfigured, match="not a folder of this account alone"):
        embedded_server.own_folder()
    place.rmdir()
    (tmp_path / "mine").mkdir(mode=0o700)
    place.symlink_to(tmp_path / "mine")
    with pytest.raises(Misconfigured, match="not a folder of this account alone"):
        embedded_server.own_folder()


def test_celery_reads_nothing_but_json() -> None:
    conf = application("redis://localhost/0", "fleet").conf
    assert (set(conf.accept_content), conf.task_serializer, conf.result_serializer) == ({"json"}, "json", "json")


@pytest.mark.parametrize("package", PACKAGES)
def test_nothing_of_ours_reads_what_executes(package: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {what}"
        for path in sorted((ROOT / package).rglob("*.py"))
        for line, what in executing(ast.parse(path.read_text()))
    ]
    assert found == []


def executing(tree: ast.Module) -> list[tuple[int, str]]:
    """Lines that import such a module, or make such a call."""
    found: list[tuple[int, str]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(node.lineno, one.name) for one in node.names if one.name.split(".")[0] in EXECUTING]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in EXECUTING:
            found.append((node.lineno, str(node.module)))
        elif isinstance(node, ast.Call):
            found += calls(node)
    return found


def calls(node: ast.Call) -> list[tuple[int, str]]:
    name, given = ast.unparse(node.func), {one.arg: ast.unparse(one.value) for one in node.keywords}
    if name == "torch.load" and given.get("weights_only") == "True":
        return []
    bad = name in EXECUTING_CALLS or given.get("trust_remote_code") == "True" or given.get("shell") == "True"
    return [(node.lineno, name)] if bad else []


def test_the_search_for_what_executes_finds_it() -> None:
    lines = ["import pickle", "from dill import loads", "torch.load(f)", "torch.load(f, weights_only=True)"]
    lines += ["run(x, shell=True)", "eval('1')"]
    assert [line for line, _ in executing(ast.parse("\n".join(lines)))] == [1, 2, 3, 5, 6]


def test_every_image_and_manifest_is_free_of_passwords() -> None:
    """What is deployed names no password: neither in an address nor in a variable."""
    files = [path for path in (ROOT / "deploy").rglob("*") if path.suffix in {".yml", ".yaml", ".sh", ".toml"}]
    files += [*ROOT.glob("docker-compose*.yml"), ROOT / "deploy" / "images" / "Dockerfile"]
    assert len(files) > 6
    literal = re.compile(
        r"rediss?://[^\s\"'$]*:[^\s\"'$@]+@|(?i:password|token|secret)\s*[:=]\s*[\"'][^\"'${}/]{4,}[\"']"
    )
    assert [str(path) for path in files if literal.search(path.read_text())] == []
