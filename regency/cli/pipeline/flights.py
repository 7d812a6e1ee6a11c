"""`regency pipeline flights`: follows the demo's topic, and writes the flights to it where that is asked for."""

from __future__ import annotations

from contextlib import suppress

import click
from confluent_kafka import Consumer, TopicPartition

from regency.cli.asking.wire import ANSWER_TIMEOUT_S, cluster_wire, first_that_answers
from regency.cli.context import TOPIC_NAME, Seconds, conclude, current, print_json, say
from regency.cli.data.librdkafka import client_config
from regency.cli.exits import CommandFailed, Exit
from regency.cli.pipeline.spark import Directory, SparkChoice, job_session, spark_options
from regency.cli.topics.making import WantedTopic, ensure_topic
from regency.clients.topic_ends import ends_of
from regency.demo.flights import FLIGHTS, airlines, flights_by_hour
from regency.demo.ledger import Ledger
from regency.demo.workload import careful_producer, produce
from regency.model.topic_names import InvalidTopicName, validate_topic_name
from regency.model.words import counted
from regency.pipeline.files.files import glob_characters
from regency.pipeline.jobs.flights.delays import why_no_delay
from regency.pipeline.jobs.flights.job import FlightsCounts, FlightsOptions, FlightsRun

_SHUFFLE = "spark.sql.shuffle.partitions"
"""200, the default, is for large clusters: each is a task with its own state."""
_CHECKPOINT = "_checkpoint"
"""In the output directory: readers of Parquet pass over names that begin so."""


@click.command(short_help="Follow the demo's topic: delays by carrier and hour.")
@click.option(
    "--to",
    type=Directory(new=False),
    metavar="DIR",
    required=True,
    help="Directory of the Parquet files, made if need be.",
)
@click.option("--topic", type=TOPIC_NAME, default="flights", show_default=True, help="Topic to read.")
@click.option("--to-topic", type=TOPIC_NAME, help="Topic to write the results to.  [default: TOPIC-delays]")
@click.option("--no-topic", is_flag=True, help="Write Parquet only.")
@click.option(
    "--checkpoint",
    type=Directory(new=False),
    metavar="DIR",
    help=f"What a restart goes on from.  [default: {_CHECKPOINT} in --to]",
)
@click.option("--once", is_flag=True, help="End when everything is done that is there now.  [default: go on for ever]")
@click.option(
    "--every", type=Seconds(0.1), default=5.0, show_default=True, help="Without --once: seconds between batches."
)
@click.option(
    "--watermark",
    default="2 days",
    show_default=True,
    metavar="TIME",
    help="How much later than the latest flight one may come and still be counted.",
)
@click.option(
    "--bad-records",
    type=click.Choice(["fail", "skip"]),
    default="fail",
    show_default=True,
    help="What becomes of a record that is no flight.",
)
@click.option("--max-offsets", type=click.IntRange(min=1), help="Most records of a batch.  [default: what there is]")
@click.option("--ignore-data-loss", is_flag=True, help="Go on with what is left where records are gone.")
@click.option("--produce", is_flag=True, help="First write the flights to the topic, which must not have records.")
@click.option(
    "--flights", "count", type=click.IntRange(1, FLIGHTS), help="With --produce: so many of them.  [default: all]"
)
@spark_options
def flights(
    to: str,
    topic: str,
    to_topic: str | None,
    checkpoint: str | None,
    every: float,
    watermark: str,
    bad_records: str,
    max_offsets: int | None,
    count: int | None,
    spark: SparkChoice,
    *,
    no_topic: bool,
    once: bool,
    ignore_data_loss: bool,
    produce: bool,
) -> Exit:
    """Follow a topic of flights, such as the demo's, and write delays by carrier and hour, on Spark.

    A row comes out for each carrier and hour once the watermark has passed it, to Parquet files and to a topic, each
    once, also where this command or a broker is killed on the way: the same command goes on where it was.

    Exit status 0: done; 1: a record was no flight (see --bad-records), records are gone, or Spark failed.

    \b
    Examples:
      regency pipeline flights --produce --once --to delays
      regency pipeline flights --to delays --every 10
      regency pipeline flights --once --to delays --bad-records skip -o json
    """

    if count is not None and not produce:
        raise click.UsageError("--flights says how many --produce writes.")
    if to_topic is not None and no_topic:
        raise click.UsageError("--to-topic and --no-topic contradict each other.")
    target = None if no_topic else to_topic or f"{topic}-delays"
    _refuse_wrong_words(to, topic, target, watermark)
    if target == topic:
        raise click.UsageError("--to-topic is the topic that is read.")
    options = FlightsOptions(
        servers=current().bootstrap_servers(),
        topic=topic,
        output=to,
        checkpoint=checkpoint or f"{to.rstrip('/')}/{_CHECKPOINT}",
        to=target,
        airlines=airlines(),
        watermark=watermark,
        every_s=None if once else every,
        skip_bad=bad_records == "skip",
        fail_on_data_loss=not ignore_data_loss,
        max_offsets_per_trigger=max_offsets,
    )
    # in the words of every command, and before Spark has taken its seconds to start
    first_that_answers(options.servers)
    if produce:
        refuse_records(options.servers, topic)
    stopped = "The same command goes on from there."
    with job_session("regency flights", spark, stopped=lambda: stopped) as session:
        if _SHUFFLE not in spark.settings:
            session.conf.set(_SHUFFLE, str(max(2, session.sparkContext.defaultParallelism)))
        run = FlightsRun(session, options)
        run.check()  # before anything is made or written
        if target is not None:
            ensure_topic(options.servers, target, WantedTopic())
        if produce:
            stopped = f"Not all flights are in {topic}: begin again with another --topic."
            produce_flights(options.servers, topic, count)
            stopped = "The same command without --produce goes on from there."
        try:
            run.run(tell=say)
        except BaseException:
            with suppress(BrokenPipeError):  # the counts are not read; that it failed is said all the same
                _tell(run.counts, watermark)
            raise
        _tell(run.counts, watermark)
    return Exit.DONE


def _tell(found: FlightsCounts, watermark: str) -> None:
    if current().json:
        print_json(found)
    if found.open:
        hours = "1 hour of a carrier is" if found.open == 1 else f"{found.open} hours of carriers are"
        say(f"{hours} open: they close as flights come that are {watermark} later.")
    conclude(found.line)


def _refuse_wrong_words(to: str, topic: str, target: str | None, watermark: str) -> None:
    """Raises BadParameter that names the option, for what can be told without a cluster and without Spark."""
    glob = glob_characters(to)
    if glob:
        raise click.BadParameter(
            f"{to} has {' '.join(glob)}: where Spark reads, that is a pattern of names. Name a directory without.",
            param_hint="--to",
        )
    for option, name in (("--topic", topic), ("--to-topic", target)):
        if name is not None:
            try:
                validate_topic_name(name)
            except InvalidTopicName as error:
                raise click.BadParameter(str(error), param_hint=option) from error
    why = why_no_delay(watermark)
    if why is not None:
        raise click.BadParameter(f"{watermark!r}: {why}. Say for example '2 days'.", param_hint="--watermark")


PARTITIONS = 6
REPLICATION_FACTOR = 3


def produce_flights(servers: str, topic: str, count: int | None) -> None:
    """Write the first `count` flights (None: all) to a topic, which is created where it is not there.

    Raises CommandFailed for a topic that has records, and where not all were acknowledged; FlightsMissing.
    """
    records = flights_by_hour(count)
    with cluster_wire(servers) as wire:
        replicas = min(REPLICATION_FACTOR, len(wire.brokers()))
    configs = {"min.insync.replicas": str(max(1, replicas - 1))}
    ensure_topic(servers, topic, WantedTopic(configs=configs, num_partitions=PARTITIONS, replication_factor=replicas))
    _refuse_held(servers, topic)
    ledger = Ledger()
    produce(careful_producer(servers), topic, records, ledger, on_sent=lambda _: None)
    if ledger.acked_count < len(records):
        reasons = "; ".join(f"{times} times {reason}" for reason, times in sorted(ledger.failures.items()))
        raise CommandFailed(
            f"{ledger.acked_count} of {len(records)} flights were acknowledged{reasons and f': {reasons}'}.",
            hint=f"`regency topics describe {topic}` shows how it is; begin again with another --topic.",
        )
    say(f"Wrote {counted(ledger.acked_count, 'flight')} to {topic}.")


def refuse_records(servers: str, topic: str) -> None:
    """Raises CommandFailed for a topic that has records; one that is not there has none. Makes nothing."""
    with cluster_wire(servers) as wire:
        [found] = wire.topics([topic])
    if found.partitions:
        _refuse_held(servers, topic)


def _refuse_held(servers: str, topic: str) -> None:
    held = _records_in(servers, topic)
    if held:
        raise CommandFailed(
            f"Topic {topic} has {counted(held, 'record')} already; --produce would write the flights a second time.",
            hint="Leave it out, or name another --topic.",
            status=Exit.REFUSED,
        )


def _records_in(servers: str, topic: str) -> int:
    consumer = Consumer({**client_config(servers), "group.id": "regency-flights"})
    try:
        partitions = consumer.list_topics(topic, timeout=ANSWER_TIMEOUT_S).topics[topic].partitions
        ends = [ends_of(consumer, TopicPartition(topic, number), ANSWER_TIMEOUT_S) for number in partitions]
    finally:
        consumer.close()
    return sum(high - low for low, high in ends)
