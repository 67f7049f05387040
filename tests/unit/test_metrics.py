"""Every metric keeps Prometheus' conventions and stands in the table; an endpoint is found, and gives way."""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from broker.errors import Misconfigured
from broker.measures import MEASURES, READY, SETTLED, SETTLING, TOKENS, Measure
from broker.metrics import Metrics
from broker.metrics_endpoint import FOLDER, Endpoint, facts_of, withdraw_dead
from broker.settings import METRICS_VARIABLE
from broker.telemetry import Meter

TABLE = Path(__file__).parents[2] / "docs" / "metrics.md"
IMAGES = TABLE.parents[1] / "deploy" / "images"
LISTEN = {"telemetry": {"metrics": "127.0.0.1:0"}}


def row(what: Measure) -> str:
    labels = ", ".join(f"`{name}`" for name in what.labels)
    return f"| `{what.shown}` | {what.kind} | {what.by} | {labels} | {what.says} |"


def scrape(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=5) as answer:
        return answer.read().decode()


def test_the_table_of_metrics_is_the_one_in_the_documents() -> None:
    rows = "\n".join(map(row, MEASURES))
    assert rows in TABLE.read_text(), f"docs/metrics.md must hold these rows:\n{rows}"


@pytest.mark.parametrize("what", MEASURES, ids=lambda what: what.name)
def test_names_keep_the_conventions(what: Measure) -> None:
    """https://prometheus.io/docs/practices/naming: base units, and `_total` for counters only."""
    assert not what.name.endswith(("_total", "_count", "_sum", "_bucket", "_info", "_created"))
    assert not any(part in ("ms", "milliseconds", "minutes", "mb", "kb", "percent") for part in what.name.split("_"))
    assert what.kind != "histogram" or what.name.rsplit("_", 1)[1] in ("seconds", "bytes", "versions")
    assert list(what.buckets) == sorted(set(what.buckets))
    assert (what.kind == "histogram") == bool(what.buckets)


@pytest.mark.parametrize(
    "path", ["docs/metrics.md", "deploy/images/prometheus-alerts.yml", "deploy/images/grafana.json"]
)
def test_whoever_asks_asks_for_what_there_is(path: str) -> None:
    names = set(re.findall(r"\btidemill_[a-z_]+[a-z]\b", (TABLE.parents[1] / path).read_text()))
    there = {what.shown for what in MEASURES} | {
        f"{what.shown}_{part}" for what in MEASURES if what.kind == "histogram" for part in ("bucket", "sum", "count")
    }
    assert names
    assert names <= there


def test_the_dashboard_asks_for_outcomes_that_are_counted() -> None:
    asked = re.findall(r'outcome=~\\"([a-z_|]+)\\"', (IMAGES / "grafana.json").read_text())
    assert asked
    assert {one for said in asked for one in said.split("|")} <= set(SETTLED.says.partition(": ")[2].split(", "))


def test_the_alerts_are_rules_and_the_scraping_finds_the_target_files() -> None:
    scraping = yaml.safe_load((IMAGES / "prometheus.yml").read_text())
    (job,) = scraping["scrape_configs"]
    ((found,),) = (one["files"] for one in job["file_sd_configs"])
    assert (IMAGES / found).parent.resolve() == (TABLE.parents[1] / "runs" / FOLDER).resolve()
    (rules,) = scraping["rule_files"]
    for group in yaml.safe_load((IMAGES / rules).read_text())["groups"]:
        for rule in group["rules"]:
            assert set(rule) <= {"alert", "expr", "for", "annotations"}
            assert rule["annotations"]["summary"]


def test_no_two_metrics_have_one_name() -> None:
    assert len({what.name for what in MEASURES}) == len(MEASURES)


def test_what_is_counted_is_what_is_scraped_with_the_names_of_the_process(tmp_path: Path) -> None:
    meter = Meter(tokens=7)
    meter.loaded()
    meter.metrics.ask(lambda: facts_of(meter))
    meter.metrics.count(SETTLED, 3, outcome="forwarded")
    meter.metrics.observe(SETTLING, 0.02)
    endpoint = Endpoint(meter.metrics, role="rollout", process="rollout-0", slot="gpu0")
    endpoint.join(tmp_path / "demo", LISTEN)
    found = {
        (sample.name, sample.labels.get("outcome", "")): sample
        for family in text_string_to_metric_families(scrape(endpoint.address))
        for sample in family.samples
    }
    endpoint.close()
    assert found[SETTLED.shown, "forwarded"].value == 3
    assert found[TOKENS.shown, ""].value == 7
    assert found[READY.shown, ""].value == 1
    assert found["tidemill_settle_seconds_count", ""].value == 1
    assert found["process_cpu_seconds_total", ""].value > 0
    named = {"run": "demo", "role": "rollout", "process": "rollout-0", "slot": "gpu0"}
    assert all(named.items() <= sample.labels.items() for sample in found.values())


def test_a_target_file_says_where_and_goes_with_its_process(tmp_path: Path) -> None:
    endpoint = Endpoint(Metrics(), role="reward", process="reward-0")
    endpoint.join(tmp_path / "demo", LISTEN)
    (target,) = (tmp_path / "metrics").iterdir()
    ((said),) = json.loads(target.read_text())
    assert said == {
        "targets": [endpoint.address],
        "labels": {"run": "demo", "role": "reward", "process": "reward-0"},
    }
    endpoint.close()
    assert list((tmp_path / "metrics").iterdir()) == []


def test_processes_given_one_port_take_the_next_free_ones(tmp_path: Path) -> None:
    first = Endpoint(Metrics(), role="slot", process="slot-0.worker")
    first.join(tmp_path / "demo", LISTEN)
    given = {"telemetry": {"metrics": first.address}}
    second = Endpoint(Metrics(), role="rollout", process="slot-0")
    second.join(tmp_path / "demo", given)
    assert int(second.address.rpartition(":")[2]) > int(first.address.rpartition(":")[2])
    assert "process_cpu_seconds_total" in scrape(second.address)
    first.close()
    second.close()


def test_only_the_target_files_of_the_dead_are_taken_away(tmp_path: Path) -> None:
    living = Endpoint(Metrics(), role="reward", process="reward-0")
    living.join(tmp_path / "demo", LISTEN)
    killed = Endpoint(Metrics(), role="reward", process="reward-1")
    killed.join(tmp_path / "demo", LISTEN)
    assert killed.server is not None
    killed.server.shutdown()
    killed.server.server_close()
    withdraw_dead(tmp_path / "demo")
    assert [path.name for path in (tmp_path / "metrics").iterdir()] == ["demo.reward-0.json"]
    living.close()


def test_off_opens_nothing_and_the_environment_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(METRICS_VARIABLE, "off")
    endpoint = Endpoint(Metrics(), role="reward", process="reward-0")
    endpoint.join(tmp_path / "demo", LISTEN)
    assert (endpoint.address, list(tmp_path.iterdir())) == ("", [])
    monkeypatch.setenv(METRICS_VARIABLE, "everywhere")
    with pytest.raises(Misconfigured, match="HOST:PORT"):
        endpoint.join(tmp_path / "demo", LISTEN)


def test_an_address_that_is_not_ours_is_said_and_done_without(tmp_path: Path) -> None:
    endpoint = Endpoint(Metrics(), role="reward", process="reward-0")
    endpoint.join(tmp_path / "demo", {"telemetry": {"metrics": "192.0.2.1:9400"}})
    assert (endpoint.address, list(tmp_path.iterdir())) == ("", [])
    endpoint.join(tmp_path / "next", LISTEN)  # of a slot that serves run after run
    assert len(re.findall(r"^process_cpu_seconds_total", scrape(endpoint.address), re.MULTILINE)) == 1
    endpoint.close()


def test_a_port_that_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="metrics"):
        Endpoint(Metrics(), role="slot", process="slot-0").join(tmp_path, {"telemetry": {"metrics": "127.0.0.1:70000"}})
