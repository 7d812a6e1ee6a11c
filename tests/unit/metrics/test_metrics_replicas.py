"""Rows of replicas become sums and series; what has not changed is not written anew."""

from __future__ import annotations

from regency.broker_agent.metrics.replica_families import LOOKED_FOR, PartitionTexts, sums
from regency.broker_agent.metrics.replica_rows import PIECE, HostedRow, LogRow, Look
from regency.runtime.metrics.families import Block, Family, MetricName


def led(topic: str, partition: int, *, in_sync: int = 3, replicas: int = 3, least: int = 2) -> HostedRow:
    wanted = min(least, replicas)
    return HostedRow(
        topic,
        partition,
        offline=False,
        leads=True,
        replicas=replicas,
        in_sync=in_sync,
        under_replicated=in_sync < replicas,
        under_min_isr=in_sync < wanted,
        at_min_isr=in_sync == wanted,
        reassigning=False,
        isr_pending=in_sync == 1,
        fetcher="",
        lag=0,
    )


def followed(topic: str, partition: int, *, fetcher: str = "", lag: int = 0, offline: bool = False) -> HostedRow:
    return HostedRow(topic, partition, offline, False, 0, 0, False, False, False, False, False, fetcher, lag)


def look(*hosted: HostedRow, logs: tuple[LogRow, ...] = ()) -> Look:
    return Look(list(hosted), list(logs), 2, 1, 3, 4, 13, 5, 6, 7, 1.5, 8, 9, 10, 11, 12, {3: [40, 1], 2: [0, 2]})


def every(_: MetricName) -> bool:
    return True


def numbers(families: list[Family]) -> dict[str, float]:
    return {
        "/".join([sample.name, *sample.labels.values()]): sample.value
        for family in families
        if not isinstance(family, Block)
        for sample in family.samples
    }


def lines(texts: PartitionTexts, found: Look) -> dict[str, str]:
    return {family.name.name: family.lines for family in texts.families(found, every) if isinstance(family, Block)}


def test_sums_count_what_is_led_and_what_is_here() -> None:
    found = look(
        led("a", 0),
        led("a", 1, in_sync=2),
        led("a", 2, in_sync=1),
        followed("b", 0, fetcher="ReplicaFetcherThread-0-2", lag=9),
        followed("b", 1, offline=True),
    )
    told = {name.removesuffix("_total").rpartition("_")[2]: value for name, value in numbers(list(sums(found))).items()}
    assert told == {
        "leadercount": 3,
        "partitioncount": 7,
        "offlinereplicacount": 3,
        "underreplicatedpartitions": 2,
        "underminisrpartitioncount": 1,
        "atminisrpartitioncount": 1,
        "reassigningpartitions": 0,
        "pending": 1,
        "isrshrinks": 5,
        "isrexpands": 6,
        "failedisrupdates": 7,
        "deadthreadcount/Replica": 9,
        "replicationbytesin": 10,
        "reassignmentbytesin": 11,
        "reassignmentbytesout": 12,
        "offlinelogdirectorycount": 1,
        "purgatorysize/Produce": 3,
        "purgatorysize/Fetch": 4,
        "purgatorysize/DeleteRecords": 13,
        "minfetchrate/Replica": 1.5,
        "failedpartitionscount/Replica": 8,
        "maxlag/Replica": 9,
        "records/2": 0,
        "records/3": 40,
        "partitions/2": 2,
        "partitions/3": 1,
    }


def test_a_partition_has_a_series_in_every_family_and_its_topic_is_escaped() -> None:
    awkward = 'x"y\\'
    text = lines(
        PartitionTexts(),
        look(
            led("a", 7, in_sync=1),
            followed(awkward, 0, fetcher="ReplicaFetcherThread-1-2", lag=4),
            logs=(LogRow("a", 7, 10, 20, 30, 40),),
        ),
    )
    escaped = 'topic="x\\"y\\\\",partition="0"'
    assert text["UnderMinIsr"] == (
        'kafka_cluster_partition_underminisr{topic="a",partition="7"} 1\n'
        f"kafka_cluster_partition_underminisr{{{escaped}}} 0\n"
    )
    assert text["ConsumerLag"] == (
        f'kafka_server_fetcherlagmetrics_consumerlag{{clientId="ReplicaFetcherThread-1-2",{escaped}}} 4\n'
    )
    assert [text[name].split()[-1] for name in ("Size", "LogStartOffset", "LogEndOffset", "NumLogSegments")] == [
        "10",
        "20",
        "30",
        "40",
    ]


def test_only_pieces_with_a_change_are_written_anew() -> None:
    texts = PartitionTexts()
    rows = [led("a", number) for number in range(2 * PIECE + 1)]
    first = lines(texts, look(*rows))
    pieces = list(texts._hosted)
    rows[PIECE] = led("a", PIECE, in_sync=2)
    second = lines(texts, look(*rows))
    assert [new is old for new, old in zip(texts._hosted, pieces, strict=True)] == [True, False, True]
    changed = f'kafka_cluster_partition_insyncreplicascount{{topic="a",partition="{PIECE}"}}'
    assert second["InSyncReplicasCount"] == first["InSyncReplicasCount"].replace(f"{changed} 3\n", f"{changed} 2\n")
    assert lines(texts, look(rows[0]))["ReplicasCount"].count("\n") == 1


def test_what_changes_its_role_or_goes_leaves_no_series_of_before() -> None:
    texts = PartitionTexts()
    lines(texts, look(followed("a", 0, fetcher="ReplicaFetcherThread-0-2", lag=4), led("a", 1)))
    changed = lines(texts, look(led("a", 0), followed("a", 1, fetcher="ReplicaFetcherThread-0-3", lag=2)))
    assert changed["ConsumerLag"] == (
        'kafka_server_fetcherlagmetrics_consumerlag{clientId="ReplicaFetcherThread-0-3",topic="a",partition="1"} 2\n'
    )
    assert changed["ReplicasCount"] == (
        'kafka_cluster_partition_replicascount{topic="a",partition="0"} 3\n'
        'kafka_cluster_partition_replicascount{topic="a",partition="1"} 0\n'
    )
    assert not any(lines(texts, look()).values())


def test_a_family_that_nobody_wants_is_not_written() -> None:
    found = look(led("a", 0), logs=(LogRow("a", 0, 1, 2, 3, 4),))
    families = list(PartitionTexts().families(found, lambda name: name.name == "Size"))
    assert [family.name.family for family in families if isinstance(family, Block)] == ["kafka_log_log_size"]


def test_lag_is_told_by_follower_and_all_that_a_look_gives_is_named() -> None:
    found = look(led("a", 0), logs=(LogRow("a", 0, 1, 0, 1, 1),))
    told = numbers(list(sums(found)))
    assert (told["regency_follower_lag_records/3"], told["regency_follower_lag_unknown_partitions/2"]) == (40, 2)
    exported = {sample.name for family in sums(found) if not isinstance(family, Block) for sample in family.samples}
    exported |= {
        family.name.exported for family in PartitionTexts().families(found, every) if isinstance(family, Block)
    }
    assert exported == {name.exported for name in LOOKED_FOR}
