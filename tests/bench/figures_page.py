"""Writes the figures of tests/bench/figures into docs/internals/performance.md; --check says whether they are there.

Other pages link to that table and repeat none of its numbers.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
FIGURES: Final = ROOT / "tests" / "bench" / "figures"
PAGE: Final = ROOT / "docs" / "internals" / "performance.md"
BLOCK: Final = re.compile(r"(<!-- figures -->\n).*?(<!-- end -->)", re.DOTALL)

ROWS: Final = (
    (
        "failover",
        "failover, 100,000 partitions, five brokers",
        "{failover_seconds:.2f} s; {controller_peak_rss_mb:.0f} MB",
        "1.0 s, 400 MB",
    ),
    (
        "broker_death",
        "death of one of three brokers, 33,333 partitions: new leaders lead",
        "{new_leaders_seconds:.2f} s; {controller_peak_rss_mb:.0f} MB",
        "1 s",
    ),
    ("broker_death", "the same, until every ISR is without it", "{isr_shrinks_seconds:.2f} s", "3 s"),
    (
        "create",
        "200 topics, 10,000 partitions created and led",
        "{led_seconds:.2f} s; {controller_peak_rss_mb:.0f} MB",
        "3 s",
    ),
    (
        "controller_scrape",
        "/metrics of the ruling controller, 10,000 partitions",
        "{controller_cpu_seconds:.2f} s of CPU",
        "0.25 s",
    ),
    (
        "produce_acks_all",
        "produce, acks=all, three replicas, 100 bytes",
        "{records_per_second:,.0f} records/s",
        "200,000 records/s",
    ),
    ("produce_acks_1", "produce, acks=1, one replica, 1,000 bytes", "{mb_per_second:.0f} MB/s", "150 MB/s"),
    (
        "latency",
        "latency, acks=all, three replicas, 5,000 records/s, linger.ms=2",
        "p50 {p50_ms:.1f} ms, p99 {p99_ms:.1f} ms, p99.9 {p999_ms:.0f} ms",
        "p50 5 ms, p99 20 ms",
    ),
    (
        "consume",
        "consume, 1,000 bytes, from the page cache",
        "{mb_per_second:.0f} MB/s; {agent_cores:.2f} of a core",
        "300 MB/s",
    ),
    ("catchup", "a follower 2 GB behind", "{mb_per_second:.0f} MB/s", "150 MB/s"),
    (
        "catchup",
        "the same beside a producer",
        "{mb_per_second_beside_producer:.0f} MB/s; the producer keeps {producer_keeps_percent:.0f} %",
        "40 MB/s, 80 %",
    ),
    (
        "catchup_throttled",
        "the same, throttled to 60 MB/s",
        "{mb_per_second_beside_producer:.0f} MB/s; the producer keeps {producer_keeps_percent:.0f} %",
        "80 %",
    ),
    (
        "idle",
        "an idle agent, 4,000 partitions",
        "{agent_cores:.3f} of a core, {agent_rss_mb:.0f} MB; stop {stop_seconds:.1f} s; led after {led_seconds:.1f} s",
        "0.05, 400 MB, 5 s",
    ),
    (
        "consumers",
        "1,000 idle consumers, one agent",
        "{agent_cores:.2f} of a core; the producer keeps {producer_keeps_percent:.0f} %",
        "0.25, 90 %",
    ),
    (
        "metrics",
        "/metrics of an agent that leads 10,000 partitions",
        "{scrape_ms:.0f} ms; the producer keeps {kept_percent:.0f} %",
        "250 ms",
    ),
    (
        "groups",
        "offsets committed, one coordinator and its CPU, 500 clients",
        "{commits_per_second:,.0f} commits/s; {coordinator_cores:.2f} of a core; p99 {commit_p99_ms:.0f} ms",
        "10,000 commits/s",
    ),
    ("groups", "500 members join one group", "{join_to_stable_seconds:.1f} s", "3 s"),
    (
        "groups",
        "a coordinator with 1,000,000 offsets stops: the next one answers",
        "{moved_seconds:.1f} s; longest step {moved_longest_step_ms:.0f} ms",
        "5 s, 50 ms",
    ),
    ("groups", "1,000 idle groups of three members", "{idle_coordinator_cores:.2f} of a core", "0.25"),
    (
        "start_over",
        "5,000 logs begin again where their leaders begin: the longest step of the loop",
        "{start over, 5000[longest_step_cpu_ms]:.0f} ms of CPU, {start over, 5000[longest_step_ms]:.0f} ms",
        "50 ms",
    ),
    (
        "start_over",
        "a default of 5,000 logs changes: the longest step of the loop",
        "{default changed, 5000[longest_step_cpu_ms]:.0f} ms of CPU, {default changed, 5000[longest_step_ms]:.0f} ms",
        "50 ms",
    ),
    (
        "compaction",
        "a log of 1 GB is compacted, beside 5,000 records/s: their p99 to that without",
        "{mb_per_second:.0f} MB/s; {p99_factor:.2f} times",
        "100 MB/s, 1.5 times",
    ),
    ("help", "`--help` of each command", "{median_seconds:.2f} s, the slowest {slowest_seconds:.2f} s", "0.3 s"),
    ("simulation", "deep schedules of the simulation, a core", "{schedules_per_core_second:.2f} a second", "2"),
    (
        "cluster-history",
        "`pipeline cluster-history` of 33, 100,000 and 1,000,000 decisions",
        "{seconds_33:.0f} s, {seconds_100000:.0f} s, {seconds_1000000:.0f} s",
        "25 s, 25 s, 60 s",
    ),
    ("spark", "Spark reads, values of one size, three agents", "{rows_per_second:,.0f} rows/s", "400,000 rows/s"),
)
"""File, what was measured, its figures, the target."""


def rendered(page: str) -> str:
    """The page with its table made again. Raises ValueError without marks, KeyError without a figure."""
    lines = ["| what | measured | target | bench |", "|---|---|---|---|"]
    for file, what, template, target in ROWS:
        results = json.loads((FIGURES / f"{file}.json").read_text("utf-8"))["results"]
        lines.append(f"| {what} | {template.format_map(results)} | {target} | `{file}` |")
    made, times = BLOCK.subn(lambda match: match[1] + "\n".join(lines) + "\n" + match[2], page)
    if times != 1:
        raise ValueError(f"{PAGE.name}: one block from <!-- figures --> to <!-- end --> is expected, found {times}")
    return made


def main(arguments: list[str]) -> int:
    """0: the page has the figures; 1: with --check, it has others."""
    text = PAGE.read_text("utf-8")
    made = rendered(text)
    if "--check" not in arguments:
        PAGE.write_text(made, "utf-8")
    elif made != text:
        print("figures: docs/internals/performance.md has others; run .venv/bin/python tests/bench/figures_page.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
