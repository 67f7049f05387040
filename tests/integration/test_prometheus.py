"""What we ship for Prometheus, in Prometheus' own hands: it takes the files, finds the processes of a real run, gets
every documented series with its kind and labels, and the alerts fire when they should and at no other time.

Skipped, and says so, where there is no Prometheus.
"""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from broker.measures import MEASURES, Measure
from tests.integration.prometheus import ALERTS, CONFIG, IMAGES, Prometheus, needs_promtool, prometheus, promtool
from tests.integration.test_launcher import SLOWER, Launched, left_over, made, until

__all__ = ["made"]

pytestmark = needs_promtool

DASHBOARD = IMAGES / "grafana.json"
RULES = Path(__file__).with_name("prometheus-alerts.yml")
ALWAYS = {"job", "instance", "run", "role", "process"}
EVENTS = {
    "canary_failures",
    "leases_lost",
    "adopted_groups",
    "moves",
    "move_seconds",
    "controller_ends",
    "process_ends",
}
"""Counted when they happen, which they need not while a run is well."""
NEED_NOT_ANSWER = {"Moves a minute", "Ends of controllers", "Tried again, given back, lost"}
"""Panels that show nothing but such."""
OPTIONAL = {"reason"}
"""Labels that are empty where they say nothing."""


def test_the_shipped_files_are_sound_to_prometheus() -> None:
    assert "SUCCESS" in promtool("check", "config", CONFIG)
    said = promtool("check", "rules", ALERTS)
    assert f"{len(alerts())} rules found" in said


def test_every_alert_fires_when_it_should_and_at_no_other_time() -> None:
    promtool("test", "rules", RULES)
    told = [test for case in yaml.safe_load(RULES.read_text())["tests"] for test in case["alert_rule_test"]]
    assert {test["alertname"] for test in told if test["exp_alerts"]} == set(alerts())
    for test in told:
        for raised in test["exp_alerts"]:
            assert raised["exp_annotations"], f"{test['alertname']}: what it says is not looked at"


def alerts() -> list[str]:
    return [rule["alert"] for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def test_every_expression_of_the_dashboard_is_one_to_prometheus(tmp_path: Path) -> None:
    said = [target["expr"] for panel in panels() for target in panel["targets"]]
    rules = [{"record": f"panel:{number}", "expr": asked(expression)} for number, expression in enumerate(said)]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert f"{len(said)} rules found" in promtool("check", "rules", tmp_path / "rules.yml")
    assert all('{run=~"$run"' in expression for expression in said), "a panel shows every run, whichever was chosen"


def panels() -> list[dict[str, Any]]:
    """Those of the dashboard that ask for something."""
    return [panel for panel in json.loads(DASHBOARD.read_text())["panels"] if panel["type"] != "row"]


def asked(expression: str) -> str:
    """As Grafana asks it, with all runs chosen."""
    return expression.replace("$run", ".*").replace("$__rate_interval", "20s")


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_a_run_is_found_and_every_documented_series_arrives(made: Callable[..., Path]) -> None:
    slower_than_beats = "train.options={pace_s=1.5}"  # a version that is overtaken before the next beat is nowhere seen
    folder = made("scheduler.slots=2", "scheduler.every_s=0.5", *SLOWER, slower_than_beats)
    with prometheus(folder.parent) as server:
        launched = Launched(folder)
        launched.reach(6, within_s=60)
        assert_all_are_up(server, folder)
        until(lambda: not (expected() - arrived(server)), 30)
        names = arrived(server)
        for what in MEASURES:
            if what.name in names:
                assert_as_documented(server, what)
        for process in server.targets():
            assert_lints(server, process)
        for panel in panels():
            assert_shows(server, panel)
        until(lambda: all(rule["health"] == "ok" for rule in rules(server)), 30)
        assert [rule["name"] for rule in rules(server) if rule["state"] == "firing"] == []
        launched.interrupt()
        assert launched.end(within_s=60) == 130, launched.text()
        until(lambda: server.targets() == {}, 20)
    assert left_over(folder) == []


def assert_all_are_up(server: Prometheus, folder: Path) -> None:
    """By the files in `runs/metrics`, and by nothing else."""
    written = {path.name.removeprefix(f"{folder.name}.").removesuffix(".json") for path in files(folder)}
    assert {"feeder-0", "reward-0", "slot-0", "slot-0.worker", "slot-1.worker"} <= written, written
    until(lambda: server.targets() == dict.fromkeys(written, "up"), 30)
    said = server.query("up")
    assert {one["metric"]["process"] for one in said} == written
    assert all(one["value"][1] == "1" and one["metric"]["run"] == folder.name for one in said)


def files(folder: Path) -> Iterator[Path]:
    return (folder.parent / "metrics").glob("*.json")


def expected() -> set[str]:
    return {what.name for what in MEASURES} - EVENTS


def arrived(server: Prometheus) -> set[str]:
    names = set(server.ask("label/__name__/values"))
    return {what.name for what in MEASURES if series_of(what) in names}


def series_of(what: Measure) -> str:
    return f"{what.shown}_count" if what.kind == "histogram" else what.shown


def assert_as_documented(server: Prometheus, what: Measure) -> None:
    for one in server.query(series_of(what)):
        labels: dict[str, str] = one["metric"]
        given = {name for name in labels if name != "__name__"} - {"slot"}
        optional = set(what.labels) if what.name == "run_groups" else set[str]()
        assert given | optional == ALWAYS | set(what.labels), (what.shown, labels)
        assert labels["role"] in what.by.split(", "), (what.shown, labels["role"])
    metadata = {
        name: server.ask("metadata", metric=name).get(name, []) for name in (what.shown, f"tidemill_{what.name}")
    }
    kinds = {(said["type"], said["help"]) for told in metadata.values() for said in told}
    assert kinds == {(what.kind, what.says)}, (what.shown, metadata)


def assert_lints(server: Prometheus, process: str) -> None:
    (up,) = server.query(f'up{{process="{process}"}}')
    with urllib.request.urlopen(f"http://{up['metric']['instance']}/metrics", timeout=10) as answer:
        promtool("check", "metrics", said=answer.read().decode())


def assert_shows(server: Prometheus, panel: dict[str, Any]) -> None:
    """Something, under the names that its legend says."""
    for target in panel["targets"]:
        ask = partial(server.query, asked(target["expr"]))
        if panel["title"] not in NEED_NOT_ANSWER:  # a rate needs two looks at a series
            until(ask, 30)
        said = ask()
        for name in set(re.findall(r"{{(\w+)}}", target["legendFormat"])) - OPTIONAL:
            assert all(name in one["metric"] for one in said), (panel["title"], name, said)


def rules(server: Prometheus) -> list[dict[str, Any]]:
    return server.ask("rules")["groups"][0]["rules"]
