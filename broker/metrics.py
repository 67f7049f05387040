"""Counting for Prometheus, in a registry of its own for each process.

For: whoever has something to count (`measures` says what there is). Not for: answering scrapes (`metrics_endpoint`), or
what a heartbeat carries: that is counted once, by the `Meter`, and read from it here at the moment of a scrape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import cast

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from broker.measures import Measure

KINDS = {"counter": Counter, "gauge": Gauge}

Facts = Iterable[tuple[Measure, Mapping[str, str], float]]
"""(what, its labels, the number now)"""


class Metrics:
    """What one process counts.

    >>> metrics = Metrics()
    >>> metrics.count(SETTLED, outcome="forwarded")
    >>> metrics.observe(SETTLING, 0.002)
    >>> metrics.ask(lambda: [(READY, {}, 1.0)])      # read at each scrape
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.made: dict[str, Counter | Gauge | Histogram] = {}
        self.children: dict[tuple[str, ...], Counter | Gauge | Histogram] = {}
        """Kept by name and labels: the library takes ten times as long to find one."""

    def count(self, what: Measure, amount: float = 1, **labels: str) -> None:
        cast("Counter", self.of(what, labels)).inc(amount)

    def observe(self, what: Measure, value: float, **labels: str) -> None:
        cast("Histogram", self.of(what, labels)).observe(value)

    def put(self, what: Measure, value: float, **labels: str) -> None:
        cast("Gauge", self.of(what, labels)).set(value)

    def of(self, what: Measure, labels: Mapping[str, str]) -> Counter | Gauge | Histogram:
        """The library's own object for it, made when first asked for."""
        key = (what.name, *labels.values())
        if key not in self.children:
            self.children[key] = self.child(what, labels)
        return self.children[key]

    def child(self, what: Measure, labels: Mapping[str, str]) -> Counter | Gauge | Histogram:
        if what.name not in self.made:
            self.made[what.name] = self.make(what)
        return self.made[what.name].labels(*(labels[name] for name in what.labels)) if labels else self.made[what.name]

    def make(self, what: Measure) -> Counter | Gauge | Histogram:
        name = f"tidemill_{what.name}"
        if what.kind == "histogram":
            return Histogram(name, what.says, what.labels, buckets=what.buckets, registry=self.registry)
        return KINDS[what.kind](name, what.says, what.labels, registry=self.registry)

    def ask(self, facts: Callable[[], Facts]) -> None:
        """Numbers that are kept elsewhere already, read at each scrape."""
        self.registry.register(Asked(facts))

    def about_the_process(self) -> None:
        """CPU seconds, memory and open files of this process (`process_…`)."""
        ProcessCollector(registry=self.registry)


class Asked(Collector):
    """Facts as families."""

    def __init__(self, facts: Callable[[], Facts]) -> None:
        self.facts = facts

    def describe(self) -> list[Metric]:
        """Nothing beforehand: registering must not ask."""
        return []

    def collect(self) -> Iterator[Metric]:
        families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        for what, labels, value in self.facts():
            kind = CounterMetricFamily if what.kind == "counter" else GaugeMetricFamily
            name = f"tidemill_{what.name}"
            family = families.setdefault(name, kind(name, what.says, labels=what.labels))
            family.add_metric([labels[name] for name in what.labels], value)
        yield from families.values()


def said(names: Mapping[str, str]) -> dict[str, str]:
    """Those that say something: to Prometheus an empty label is none."""
    return {name: value for name, value in names.items() if value}


class Named(Collector):
    """Everything another registry has, each sample with the names of this process."""

    def __init__(self, inner: Collector, names: Mapping[str, str]) -> None:
        self.inner = inner
        self.names = names

    def collect(self) -> Iterator[Metric]:
        for family in self.inner.collect():
            named = Metric(family.name, family.documentation, family.type, family.unit)
            named.samples = [self.with_names(sample) for sample in family.samples]
            yield named

    def with_names(self, sample: Sample) -> Sample:
        return sample._replace(labels={**said(self.names), **sample.labels})
