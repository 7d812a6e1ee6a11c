"""Whether Spark jobs keep their promises while their processes and the brokers are killed: a proof, not a speed.

    ./dev bench spark-kills --seeds 20

Each seed chooses a job and who dies when. Writes are effectively once, as streams or as batches, from a topic to a
topic; reads are batches, or streams with Trigger.AvailableNow. Executors are processes of their own
(local-cluster[2,1,1024]), or threads of the driver. Killed with SIGKILL, when so many rows went through, are a Python
worker in the middle of a task, an executor's Java, the driver (Python and Java, in any order), and a broker that leads,
which is started again; now and then a leader stands still (SIGSTOP), or a query is stopped and started again. Drivers
are started again from the checkpoint.

In the end a plain confluent-kafka consumer says what is in the topics. Every row has to be there once, rows with a key
in the order of their task. A row that is there twice because an attempt that was given up was heard of after its
successor had begun to read back is counted as `late`: docs/use/spark-write.md says why nothing can prevent that.
Whatever else is wrong ends the bench with status 1, and the seed's files stay.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from reporting import count, parser, run, say, write_report
from spark_kills.jobs import Kind
from spark_kills.trial import Outcome, create, fill, try_seed

from regency.cluster.cluster import Cluster

SOURCE = "kills-source"
SOURCE_PARTITIONS = 3
SETTINGS = {"replica.lag.time.max.ms": "2000", "min.insync.replicas": "2", "default.replication.factor": "3"}


def arguments() -> argparse.Namespace:
    flags = parser(__doc__)
    flags.add_argument("--seed", type=int, default=1, help="the first seed (default %(default)s)")
    flags.add_argument("--seeds", type=count, default=10, help="how many (default %(default)s)")
    flags.add_argument("--minutes", type=float, help="begin no other seed after so long")
    flags.add_argument("--kind", choices=("write", "read", "both"), default="both", help="(default %(default)s)")
    flags.add_argument("--kills", type=count, default=8, help="how many of each seed (default %(default)s)")
    flags.add_argument("--rows", type=count, default=60_000, help="of each job (default %(default)s)")
    flags.add_argument("--size", type=count, default=120, help="bytes of a row's value (default %(default)s)")
    return flags.parse_args()


def told(outcome: Outcome) -> str:
    job, story, verdict = outcome.job, outcome.story, outcome.verdict
    what = f"{'stream' if job.stream else 'batch'} {job.kind}"
    more = [word for word, so in (("no keys", not job.keyed), ("shuffled", job.shuffled)) if so]
    killed = ", ".join(f"{number} {who}" for who, number in sorted(story.kills.items())) or "nobody"
    return (
        f"seed {outcome.seed}: {', '.join([what, job.master, *more])}; killed: {killed}; {story.drivers} drivers,"
        f" {len(story.failures)} failures, {story.seconds:.0f} s; {verdict.records:,} records of {verdict.rows:,} rows,"
        f" {verdict.late} late, {len(verdict.bugs)} bugs"
    )


def main() -> int:
    given = arguments()
    outcomes: list[Outcome] = []
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="spark-kills-"))
    with Cluster(brokers=3, settings=SETTINGS) as cluster:
        create(cluster, SOURCE, SOURCE_PARTITIONS)
        values = fill(cluster.bootstrap_servers, SOURCE, given.rows, SOURCE_PARTITIONS, given.size)
        for seed in range(given.seed, given.seed + given.seeds):
            if given.minutes and time.monotonic() - began > 60 * given.minutes:
                break
            kind: Kind = ("write", "write", "read")[seed % 3] if given.kind == "both" else given.kind
            outcome = try_seed(cluster, seed, kind, SOURCE, values, folder / str(seed), given.kills)
            outcomes.append(outcome)
            say(told(outcome))
            for bug in outcome.verdict.bugs:
                print(f"seed {seed}: {bug}", file=sys.stderr)
    figures = summary(outcomes)
    write_report(given.json, {"seeds": len(outcomes), "first_seed": given.seed}, figures)
    broken = [outcome.seed for outcome in outcomes if outcome.verdict.bugs]
    if broken:
        print(f"bench spark-kills: seeds {broken} are wrong; their files are in {folder}", file=sys.stderr)
        return 1
    folder.rmdir()
    return 0


def summary(outcomes: list[Outcome]) -> dict[str, Any]:
    kills: Counter[str] = Counter()
    for outcome in outcomes:
        kills += outcome.story.kills
    return {
        "jobs": len(outcomes),
        "writes": sum(outcome.job.kind == "write" for outcome in outcomes),
        "reads": sum(outcome.job.kind == "read" for outcome in outcomes),
        "drivers": sum(outcome.story.drivers for outcome in outcomes),
        "query_failures": sum(len(outcome.story.failures) for outcome in outcomes),
        "kills": kills.total(),
        **{f"kills_{who}": number for who, number in sorted(kills.items())},
        "rows": sum(outcome.verdict.rows for outcome in outcomes),
        "late_rows": sum(outcome.verdict.late for outcome in outcomes),
        "bugs": sum(len(outcome.verdict.bugs) for outcome in outcomes),
    }


if __name__ == "__main__":
    sys.exit(run(main))
