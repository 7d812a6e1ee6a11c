"""PromQL in few words. `chosen` are label matchers, such as the kit's BROKER; `by` are the labels that stay."""

from __future__ import annotations


def total(metric: str, chosen: str, by: str = "") -> str:
    """The sum of a gauge."""
    return f"sum{_by(by)}({metric}{{{chosen}}})"


def highest(metric: str, chosen: str, by: str = "") -> str:
    """The maximum of a gauge."""
    return f"max{_by(by)}({metric}{{{chosen}}})"


def lowest(metric: str, chosen: str, by: str = "") -> str:
    """The minimum of a gauge."""
    return f"min{_by(by)}({metric}{{{chosen}}})"


def mean(metric: str, chosen: str, by: str = "") -> str:
    """The average of a gauge."""
    return f"avg{_by(by)}({metric}{{{chosen}}})"


def rate(metric: str, chosen: str, by: str = "") -> str:
    """How much a counter grew a second, by Grafana's idea of a fitting interval."""
    return f"sum{_by(by)}(rate({metric}{{{chosen}}}[$__rate_interval]))"


def increase(metric: str, chosen: str, by: str = "") -> str:
    """How much a counter grew within that interval."""
    return f"sum{_by(by)}(increase({metric}{{{chosen}}}[$__rate_interval]))"


def quantile(metric: str, text: str, chosen: str, by: str = "") -> str:
    """The worst of a timer's quantiles; `text` as the label spells it: "0.50", "0.99"."""
    return highest(metric, f'{chosen}, quantile="{text}"', by)


def _by(labels: str) -> str:
    return f" by ({labels}) " if labels else ""
