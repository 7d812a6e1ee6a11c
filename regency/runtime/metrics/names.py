"""How a metric is named: as Kafka's MBean, exported as jmx_exporter's published rules export it.

Those rules (prometheus/jmx_exporter's examples/kafka-2_0_0.yml, and Strimzi's): domain, type and name in lower case,
joined by underscores; `PerSec` is dropped and the value is a counter; a name that ends with `Percent` gets `_percent`.
What Kafka has no MBean for begins with `regency_`.
"""

from __future__ import annotations

from enum import Enum

import msgspec

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
