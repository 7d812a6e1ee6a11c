"""The tables of docs/reference/metrics.md, made from the names in the code. Run as a program it writes them anew:

.venv/bin/python tests/unit/metrics/metrics_tables.py
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from regency.runtime.metrics.families import Kind, MetricName
from regency.runtime.metrics.table import AGENT_METRICS, COMMON_METRICS, CONTROLLER_METRICS

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "metrics.md"
TABLES = {"controller": CONTROLLER_METRICS, "agent": AGENT_METRICS, "both": COMMON_METRICS}
WORDS = {Kind.GAUGE: "gauge", Kind.COUNTER: "counter", Kind.TIMER: "timer"}


def table(metrics: Sequence[MetricName]) -> Iterator[str]:
    """A row for each, in the order of the code."""
    yield "| metric | kind | Kafka's MBean | what it says |"
    yield "|---|---|---|---|"
    for metric in metrics:
        labels = f"{{{', '.join(metric.labels)}}}" if metric.labels else ""
        mbean = f"`{metric.mbean}`" if metric.mbean else "–"
        told = metric.help.replace("|", "\\|")
        yield f"| `{metric.exported}{labels}` | {WORDS[metric.kind]} | {mbean} | {told} |"


def rendered(page: str) -> str:
    """The page with its tables made anew. Raises KeyError for a mark of no table, ValueError where one is missing."""
    found: list[str] = []

    def made(match: re.Match[str]) -> str:
        found.append(match[2])
        return match[1] + "\n".join(table(TABLES[match[2]])) + "\n" + match[3]

    page = re.sub(r"(<!-- metrics: (\w+) -->\n).*?(<!-- end -->)", made, page, flags=re.DOTALL)
    if sorted(found) != sorted(TABLES):
        raise ValueError(f"marks of the tables {', '.join(TABLES)} are expected once each, found {', '.join(found)}")
    return page


if __name__ == "__main__":
    PAGE.write_text(rendered(PAGE.read_text("utf-8")), "utf-8")
