"""The command group `regency pipeline`."""

from __future__ import annotations

import click

from regency.cli.context import Lazy, LazyGroup, cluster_options

_JOBS = {
    "flights": Lazy("regency.cli.pipeline.flights:flights", "Follow the demo's topic: delays by carrier and hour."),
    "replica-audit": Lazy(
        "regency.cli.pipeline.replica_audit:replica_audit", "Compare all replicas of many partitions, in parallel."
    ),
    "cluster-history": Lazy(
        "regency.cli.pipeline.cluster_history:cluster_history",
        "Tell from all decisions who led when, what failed and why.",
    ),
    "judge": Lazy("regency.cli.pipeline.judge:judge", "Judge a history of clients too large for one machine."),
}


@click.group(cls=LazyGroup, lazy=_JOBS, short_help="Audit and analyse the cluster with Spark.")
@cluster_options
def pipeline() -> None:
    """Audit and analyse the cluster with Spark: each job is one Spark application, here or on any master.

    Needs pip install 'regency[pipeline]'. Every job takes --master and --conf, shows its progress on a terminal, ends
    with one line that sums up, and prints one JSON document with -o json.

    \b
    Examples:
      regency pipeline replica-audit flights
      regency pipeline cluster-history --to /tmp/history
      regency pipeline judge history/*.jsonl --master 'local[4]' --conf spark.driver.memory=4g
    """
