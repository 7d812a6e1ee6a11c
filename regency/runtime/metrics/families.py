"""How a metric is named; how snapshots become families, of few series as objects, of thousands as text at once.

prometheus_client spends 3.5 µs on a series, a formatted string a tenth of that: with 10,000 partitions the difference
between half a second for a scrape and a tenth.

A metric is named as Kafka's MBean and exported as jmx_exporter's published rules export it
(prometheus/jmx_exporter's examples/kafka-2_0_0.yml, and Strimzi's): domain, type and name in lower case, joined by
underscores; `PerSec` is dropped and the value is a counter; a name that ends with `Percent` gets `_percent`. What Kafka
has no MBean for begins with `regency_`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Protocol

import msgspec
from prometheus_client.core import Metric

from regency.runtime.metrics.recent import RecentTimes, Times

QUANTILES: tuple[tuple[str, float], ...] = tuple(
    (text, float(text)) for text in ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")
)
"""As the rules spell them (`0.50`, from 50thPercentile): dashboards select by this text."""


class Kind(Enum):
    """What a metric's values mean; the value of the enum is Prometheus' word for the series of that name."""

    GAUGE = "gauge"
    COUNTER = "counter"
    """Exported with `_total`."""
    TIMER = "timer"
    """Recent quantiles, which are gauges, `_count` and `_sum`; in milliseconds where the name says `Ms`."""


class MetricName(msgspec.Struct, frozen=True):
    """One metric. `domain` is Kafka's MBean domain, such as kafka.server; empty for our own, named by `name` alone."""

    domain: str
    type: str
    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()

    @property
    def mbean(self) -> str:
        """Kafka's name for people, such as `kafka.server:type=ReplicaManager,name=LeaderCount`; empty for our own."""
        return f"{self.domain}:type={self.type},name={self.name}" if self.domain else ""

    @property
    def family(self) -> str:
        """Name of the family, without `_total`."""
        if not self.domain:
            return self.name
        name = self.name
        if self.kind is Kind.COUNTER:
            name = name.removesuffix("PerSec")
        elif name.endswith("Percent"):
            name = name.removesuffix("Percent") + "_percent"
        return "_".join((self.domain, self.type, name)).replace(".", "_").replace("-", "_").lower()

    @property
    def exported(self) -> str:
        """What a query names: the family's name, of a counter with `_total`."""
        return self.family + "_total" if self.kind is Kind.COUNTER else self.family

    @property
    def samples(self) -> tuple[str, ...]:
        """Names of the samples of this family."""
        if self.kind is Kind.TIMER:
            return (self.family, self.family + "_count", self.family + "_sum")
        return (self.exported,)


def own(name: str, kind: Kind, explained: str, labels: tuple[str, ...] = ()) -> MetricName:
    """A metric that Kafka does not have. `name` begins with `regency_`, of a counter without `_total`."""
    return MetricName("", "", name, kind, explained, labels)


Labels = Sequence[str]
"""Values in the order of the metric's label names."""

QUANTILE_VALUES = tuple(value for _, value in QUANTILES)


class Block(msgspec.Struct, frozen=True):
    """A family of gauges or counters of which only the lines are left to be written out."""

    name: MetricName
    lines: str
    """One line per series, each with its end."""


Family = Metric | Block


class Wanted(Protocol):
    """Which metrics a scrape asks for."""

    def __call__(self, name: MetricName, /) -> bool:
        """Whether this family belongs into the answer."""
        ...


class Source(Protocol):
    """A part that has metrics. Called on the thread that serves the scrape."""

    def collect(self, wanted: Wanted, /) -> Iterable[Family]:
        """Families at this moment; those that are not `wanted` may be left out."""
        ...


def value(name: MetricName, number: float) -> Metric:
    """A gauge or counter without labels."""
    return values(name, [((), number)])


def values(name: MetricName, rows: Iterable[tuple[Labels, float]]) -> Metric:
    """A gauge or counter: a number for each set of label values."""
    metric = _metric(name)
    for labels, number in rows:
        metric.add_sample(name.exported, dict(zip(name.labels, labels, strict=True)), float(number))
    return metric


def times(name: MetricName, rows: Iterable[tuple[Labels, Times]]) -> tuple[Metric, ...]:
    """A timer: quantiles, count and sum for each set of label values.

    Not typed a summary: from version 3 on Prometheus rewrites the quantiles of one, 0.50 to 0.5, and dashboards made
    for Kafka would lose their medians. What jmx_exporter makes of Kafka's timers are gauges.
    """
    family = name.family
    quantiles = Metric(family, name.help, "gauge")
    count = Metric(f"{family}_count", f"How many were measured. {name.help}", "unknown")
    total = Metric(f"{family}_sum", f"Sum of all that were measured, milliseconds. {name.help}", "unknown")
    for labels, read in rows:
        given = dict(zip(name.labels, labels, strict=True))
        for (text, _), at in zip(QUANTILES, read.quantiles_ms, strict=True):
            quantiles.add_sample(quantiles.name, {**given, "quantile": text}, at)
        count.add_sample(count.name, given, float(read.count))
        total.add_sample(total.name, given, read.sum_ms)
    return quantiles, count, total


def timers(name: MetricName, rows: Mapping[tuple[str, ...], RecentTimes], now_ms: int) -> tuple[Metric, ...]:
    """A timer from the counters themselves, by label values, read at `now_ms`."""
    return times(name, [(labels, timer.read(now_ms, QUANTILE_VALUES)) for labels, timer in rows.items()])


def block(name: MetricName, rows: Iterable[tuple[str, float]]) -> Block:
    """Many gauges or counters: a number for each set of labels, which `label_text` has made; empty for none."""
    exported = name.exported
    return Block(
        name,
        "".join(
            [f"{exported}{{{labels}}} {number}\n" if labels else f"{exported} {number}\n" for labels, number in rows]
        ),
    )


def label_text(names: Sequence[str], given: Labels) -> str:
    """Labels as they stand between the braces, values escaped as both formats want it."""
    return ",".join(f'{name}="{escape(text)}"' for name, text in zip(names, given, strict=True))


def escape(text: str) -> str:
    """A label's value with backslash, quote and line feed escaped."""
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def head(name: MetricName, *, openmetrics: bool) -> str:
    """The two lines before a family's series."""
    titled = name.family if openmetrics else name.exported
    explained = name.help.replace("\\", r"\\").replace("\n", r"\n")
    if openmetrics:
        explained = explained.replace('"', r"\"")
    return f"# HELP {titled} {explained}\n# TYPE {titled} {name.kind.value}\n"


def _metric(name: MetricName) -> Metric:
    assert name.kind is not Kind.TIMER, f"{name.family}: a timer has several families"
    return Metric(name.family, name.help, name.kind.value)
