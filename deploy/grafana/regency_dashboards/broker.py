"""The Broker dashboard: one or more brokers: what they hold, what they are asked, where time goes, how they follow."""

from __future__ import annotations

from collections.abc import Iterator

from grafana_foundation_sdk.builders import dashboard

from regency_dashboards.kit import (
    BROKER,
    GREEN,
    NEUTRAL,
    ORANGE,
    RED,
    ZERO_IS_BETTER,
    ZERO_IS_GOOD,
    PanelBuilder,
    board,
    brokers,
    graph,
    stat_panel,
    timeline,
)
from regency_dashboards.queries import highest, increase, lowest, mean, quantile, rate, total

REPLICAS = "kafka_server_replicamanager"
TRAFFIC = "kafka_server_brokertopicmetrics"
REQUESTS = "kafka_network_requestmetrics"
FETCHERS = "kafka_server_replicafetchermanager"
SESSION = "kafka_server_sessionexpirelistener_zookeeper"
TOTAL = f'{BROKER}, topic=""'

STATES = {
    0: ("not running", RED),
    1: ("starting", ORANGE),
    2: ("recovering", ORANGE),
    3: ("running", GREEN),
    6: ("asks to leave", ORANGE),
    7: ("shutting down", ORANGE),
}


def build() -> dashboard.Dashboard:
    """The dashboard."""
    return board(
        "regency-broker",
        "Regency / Broker",
        "Broker agents: what they hold, serve and follow.",
        {
            "At a glance": _glance(),
            "Requests": _requests(),
            "Traffic": _traffic(),
            "Following and in-sync replicas": _following(),
            "Storage": _storage(),
            "Processes": _process(),
        },
        brokers(),
    )


def _glance() -> Iterator[PanelBuilder]:
    yield stat_panel(
        "Replicas",
        total(f"{REPLICAS}_partitioncount", BROKER),
        "Partitions that they keep a replica of. Good: about the same on all; `regency partitions plan` spreads them.",
        NEUTRAL,
        width=4,
    )
    yield stat_panel(
        "Leaders",
        total(f"{REPLICAS}_leadercount", BROKER),
        "Partitions that they lead. Good: about a third of the replicas with three of each.",
        NEUTRAL,
        width=4,
    )
    yield stat_panel(
        "Under-replicated",
        total(f"{REPLICAS}_underreplicatedpartitions", BROKER),
        "Partitions they lead of which a replica is not in sync. Good: 0; look for the broker that is missing, or "
        "slow.",
        ZERO_IS_BETTER,
        width=4,
    )
    yield stat_panel(
        "Under min ISR",
        total(f"{REPLICAS}_underminisrpartitioncount", BROKER),
        "Partitions they lead that refuse acks=all now. Good: 0; bring back the brokers that are missing.",
        ZERO_IS_GOOD,
        width=4,
    )
    yield stat_panel(
        "At min ISR",
        total(f"{REPLICAS}_atminisrpartitioncount", BROKER),
        "Partitions they lead that refuse acks=all when one more replica is lost. Good: 0 where the replication factor "
        "is greater than min.insync.replicas.",
        ZERO_IS_BETTER,
        width=4,
    )
    yield stat_panel(
        "Offline replicas",
        total(f"{REPLICAS}_offlinereplicacount", BROKER),
        "Replicas in log directories that failed. Good: 0; repair the disk and restart the agent.",
        ZERO_IS_GOOD,
        width=4,
    )
    yield timeline(
        "State",
        highest("kafka_server_kafkaserver_brokerstate", BROKER, by="instance"),
        "{{instance}}",
        "Good: running. A long recovery after kill -9 is normal for large logs; a gap is a process that is down.",
        STATES,
    )
    yield graph(
        "Data loop: how late it runs (p99)",
        {"{{instance}}": quantile("regency_data_loop_lag_ms", "0.99", BROKER, by="instance")},
        "One thread owns partitions and logs; this is how long what is due waits for it. Good: under 20 ms. Beyond "
        "500 ms the host is out of CPU, or a disk blocks.",
        unit="ms",
        steps=((None, GREEN), (500, RED)),
    )
    yield graph(
        "Data loop: longest step",
        {"{{instance}}": highest("regency_loop_step_seconds", f'{BROKER}, clock="cpu", quantile="1"', by="instance")},
        "CPU time of the longest step in the last minutes, in which nothing else was served. Good: under 50 ms.",
        unit="s",
        steps=((None, GREEN), (0.05, RED)),
    )
    yield graph(
        "Idle",
        {
            "{{instance}}": mean(
                "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent", BROKER, by="instance"
            )
        },
        "Share of the time in which the data loop has nothing to do. Good: above 30 %. Below 10 % requests queue: "
        "spread leadership or add brokers.",
        unit="percentunit",
        top=1,
    )


def _requests() -> Iterator[PanelBuilder]:
    yield graph(
        "Requests",
        {"{{request}}": rate(f"{REQUESTS}_requests_total", BROKER, by="request")},
        "Requests a second, by kind. Good: mostly Produce and Fetch. Many Metadata requests are clients that "
        "keep reconnecting, or look for a leader that is not there.",
        unit="reqps",
    )
    yield graph(
        "Errors answered",
        {"{{request}} {{error}}": rate(f"{REQUESTS}_errors_total", f'{BROKER}, error!="NONE"', by="request, error")},
        "Error codes in answers, a second. Good: none, but for moments of a failover. NOT_LEADER_OR_FOLLOWER while "
        "leadership moves is how clients learn of it; NOT_ENOUGH_REPLICAS is a partition under min ISR.",
        unit="ops",
    )
    yield graph(
        "Requests refused",
        {
            "produce": rate(f"{TRAFFIC}_failedproducerequests_total", TOTAL),
            "fetch": rate(f"{TRAFFIC}_failedfetchrequests_total", TOTAL),
        },
        "Produce and fetch requests of which a partition was refused, a second. Good: 0, but for moments of a "
        "failover.",
        unit="reqps",
    )
    for title, request, about in (
        (
            "Produce: where the time goes (p99)",
            "Produce",
            "Good: remote time, the wait for followers, dominates. A long local time is a slow disk or a busy broker.",
        ),
        (
            "Fetch by consumers: where the time goes (p99)",
            "FetchConsumer",
            "Remote time is the wait for new records, up to fetch.max.wait.ms: long is good where little is produced.",
        ),
        (
            "Fetch by followers: where the time goes (p99)",
            "FetchFollower",
            "Remote time is the wait for new records: long is good. A long local time is cold reads.",
        ),
    ):
        yield graph(
            title,
            {
                part: quantile(f"{REQUESTS}_{part}timems", "0.99", f'{BROKER}, request="{request}"')
                for part in ("total", "local", "remote", "responsequeue", "responsesend")
            },
            about,
            unit="ms",
        )
    yield graph(
        "Fenced",
        {"{{error}}": rate("regency_fenced_requests_total", BROKER, by="error")},
        "Requests refused a second because their epoch or identity is over: of deposed controllers and leaders, of old "
        "metadata. Good: 0, but for moments of a failover.",
        unit="ops",
    )
    yield graph(
        "Waiting (purgatory)",
        {
            "{{delayedOperation}}": total(
                "kafka_server_delayedoperationpurgatory_purgatorysize", BROKER, by="delayedOperation"
            )
        },
        "Produce requests that wait for followers, fetches that wait for records. Good: few of the first. Many "
        "waiting fetches are idle consumers; many waiting produces are slow followers.",
    )
    yield graph(
        "Connections",
        {
            "{{instance}} {{listener}}": total(
                "kafka_server_socket_server_metrics_connection_count", BROKER, by="instance, listener"
            )
        },
        "Open connections of clients and followers. Good: steady. A rise without end is a client that does not close "
        "them.",
    )
    yield graph(
        "Lack of descriptors or memory",
        {
            "connections turned away": rate(
                "regency_closed_connections_total", f'{BROKER}, reason=~"no_descriptors|unread|slow"'
            ),
            "work on logs put off": rate("regency_shortages_total", BROKER),
        },
        "Clients refused or cut off as descriptors, or the memory for requests and answers, were used up, and work on "
        "logs that waits for them, a second. Good: 0; raise LimitNOFILE, or look for clients that do not read.",
        unit="ops",
    )


def _traffic() -> Iterator[PanelBuilder]:
    for title, series, about, unit in (
        (
            "Clients",
            (("in", "bytesin", TOTAL), ("out", "bytesout", TOTAL), ("rejected", "bytesrejected", TOTAL)),
            "Bytes a second produced and consumed. Good: 0 rejected; those batches pass max.message.bytes.",
            "Bps",
        ),
        (
            "Replication",
            (
                ("in", "replicationbytesin", BROKER),
                ("out", "replicationbytesout", BROKER),
                ("moved in", "reassignmentbytesin", BROKER),
                ("moved out", "reassignmentbytesout", BROKER),
            ),
            "Bytes a second between brokers, of them moved by reassignments. Good: as many as leaders are written to.",
            "Bps",
        ),
        (
            "Records in",
            (("records", "messagesin", TOTAL),),
            "Records a second that producers wrote. Good: what you expect; a fall to 0 is producers that stopped.",
            "si:records/s",
        ),
    ):
        yield graph(
            title,
            {
                f"{legend} {{{{instance}}}}": rate(f"{TRAFFIC}_{name}_total", chosen, by="instance")
                for legend, name, chosen in series
            },
            about,
            unit=unit,
        )


def _following() -> Iterator[PanelBuilder]:
    yield graph(
        "Largest lag",
        {"{{instance}}": highest(f"{FETCHERS}_maxlag", BROKER, by="instance")},
        "Records by which the slowest partition is behind its leader. Good: near 0, or falling.",
    )
    yield graph(
        "Partitions no longer followed",
        {"{{instance}}": highest(f"{FETCHERS}_failedpartitionscount", BROKER, by="instance")},
        "Given up after an error, until the controller says again what to follow. Good: 0. Otherwise the log of the "
        "agent says what it met.",
    )
    yield graph(
        "In-sync replica sets",
        {
            f"{legend} {{{{instance}}}}": rate(f"{REPLICAS}_{name}_total", BROKER, by="instance")
            for legend, name in (
                ("shrinks", "isrshrinks"),
                ("expansions", "isrexpands"),
                ("failed", "failedisrupdates"),
            )
        },
        "Changes a second of the partitions it leads. Good: 0, or as many expansions after as shrinks before.",
        unit="ops",
    )
    yield graph(
        "ISR changes under way",
        {"{{instance}}": total("regency_isr_changes_pending", BROKER, by="instance")},
        "Written to ZooKeeper and not known to have arrived. Good: 0 but for moments; more while ZooKeeper is away.",
    )
    yield graph(
        "ZooKeeper: latency (p99)",
        {
            "{{instance}} {{daemon}}": quantile(
                "kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms", "0.99", BROKER, by="instance, daemon"
            )
        },
        "How long requests to ZooKeeper take. Good: under 20 ms. Every change of an in-sync replica set waits for it.",
        unit="ms",
    )
    yield graph(
        "ZooKeeper: session",
        {
            f"{name} {{{{instance}}}}": increase(f"{SESSION}{name}_total", BROKER, by="instance")
            for name in ("disconnects", "syncconnects", "expires")
        },
        "Good: 0. A disconnect followed by a connect is harmless; an expiry made the broker dead to the cluster until"
        " it registered again.",
    )
    yield graph(
        "ZooKeeper: age of the session",
        {"{{instance}} {{daemon}}": lowest("regency_zookeeper_session_age_seconds", BROKER, by="instance, daemon")},
        "Good: grows. A fall to 0 is a new session.",
        unit="s",
    )


def _storage() -> Iterator[PanelBuilder]:
    yield graph(
        "Logs opened at the start",
        {
            "opened {{instance}}": total("regency_recovery_logs_opened", BROKER, by="instance"),
            "found {{instance}}": total("regency_recovery_logs_found", BROKER, by="instance"),
        },
        "How far the recovery of logs is. Good: all that were found are opened.",
    )
    yield graph(
        "Size of the logs",
        {"{{instance}}": total("kafka_log_log_size", BROKER, by="instance")},
        "Good: levels off once retention deletes as much as comes in.",
        unit="bytes",
    )
    yield graph(
        "Room left",
        {"{{instance}} {{directory}}": lowest("regency_log_directory_usable_bytes", BROKER, by="instance, directory")},
        "What can still be written to the volume of each log directory. Good: levels off above a tenth of its size; a "
        "line that falls to zero says when: move replicas, or shorten retention, before.",
        unit="bytes",
    )
    yield graph(
        "Flushing a log (p99)",
        {"{{instance}}": quantile("kafka_log_logflushstats_logflushrateandtimems", "0.99", BROKER, by="instance")},
        "How long fsync takes. Good: under 100 ms on a disk of its own.",
        unit="ms",
    )
    yield graph(
        "Disk",
        {
            "read {{instance}}": rate("kafka_server_kafkaserver_linux_disk_read_bytes", BROKER, by="instance"),
            "written {{instance}}": rate("kafka_server_kafkaserver_linux_disk_write_bytes", BROKER, by="instance"),
        },
        "What the process read from and wrote to disks, by the kernel. Good: hardly any reads. Reads are of records "
        "that the page cache no longer has.",
        unit="Bps",
    )


def _process() -> Iterator[PanelBuilder]:
    for title, expr, about, unit in (
        (
            "CPU",
            rate("process_cpu_seconds_total", BROKER, by="instance, daemon"),
            "Cores in use by agent and controller. Good: below one each: one thread owns the data of an agent.",
            "short",
        ),
        (
            "Memory",
            total("process_resident_memory_bytes", BROKER, by="instance, daemon"),
            "Resident memory. Good: levels off.",
            "bytes",
        ),
        (
            "Open files",
            total("process_open_fds", BROKER, by="instance, daemon"),
            "File descriptors: segments, sockets. Good: far below the limit (`ulimit -n`).",
            "short",
        ),
    ):
        yield graph(title, {"{{instance}} {{daemon}}": expr}, about, unit=unit)
