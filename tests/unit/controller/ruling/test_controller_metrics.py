"""What a scrape of a controller tells, each number from a scripted cluster; one that does not rule tells none of it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics

from regency.controller.events import BrokersChanged, ControllerState, EventLoop, SnapshotWanted
from regency.controller.metrics import ControllerMetrics, EventMeter, RequestMeter
from regency.controller.state.reconcile_rules import expected
from regency.controller.state.reports import ReplicaReport, Taken
from regency.controller.term import Resign
from regency.model.ids import TopicPartition
from regency.runtime.http.probes import Exposition
from regency.runtime.metrics.table import CONTROLLER_METRICS

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
KAFKA = "kafka_controller_kafkacontroller_"
QUEUES = "kafka_controller_controllerchannelmanager_"


class Scraped:
    """A candidate with its meters, and what a scrape of it says."""

    def __init__(self, world, candidate, max_partitions: int = 1000) -> None:
        self.candidate = candidate
        controller = candidate.controller
        self.events, self.requests = EventMeter(candidate.queue, world.clock), RequestMeter(world.clock)
        candidate.loop = EventLoop(candidate.queue, self.events.timed(controller.process))
        self.metrics = ControllerMetrics(
            controller,
            candidate.queue,
            candidate.loop,
            events=self.events,
            requests=self.requests,
            clock=world.clock,
            max_partitions=max_partitions,
        )
        self._clock = world.clock

    def all(self, *names: str) -> dict[str, float]:
        """Every sample by its name and labels as text."""
        read = Exposition([self.metrics], self._clock).render(False, frozenset(names)).decode()
        return {
            sample.name + "".join(f" {value}" for _, value in sorted(sample.labels.items())): sample.value
            for family in parser.text_string_to_metric_families(read)
            for sample in family.samples
            if not sample.name.startswith(("python", "process"))
        }

    def of(self, prefix: str) -> dict[str, float]:
        """Those that are not 0, without the prefix of their names."""
        return {
            name.removeprefix(prefix): value for name, value in self.all().items() if name.startswith(prefix) and value
        }


@pytest.fixture
def two(world) -> Iterator[tuple[Scraped, Scraped]]:
    """Brokers 1, 2 and 3; the candidate of 1 rules, that of 2 does not."""
    world.start_brokers(1, 2, 3)
    yield Scraped(world, world.candidate(1)), Scraped(world, world.candidate(2))


def report(world, broker: int, **changes: object) -> None:
    """A broker reports what it shall be, high watermark 5 and log start 2, but for `changes`."""
    candidate = next(each for each in world.candidates if each.rules)
    context, replicas = candidate.term.context, {}
    for partition in context.partitions():
        want = expected(context, broker, partition)
        if want is not None:
            told = ReplicaReport(
                want.topic_id, want.role, want.leader, want.leader_epoch, want.zk_version, 5, 7, 2, (1,), "/d"
            )
            replicas[partition] = msgspec.structs.replace(told, **changes)
    epoch = context.brokers[broker].epoch
    candidate.controller.reports.take(Taken(broker, epoch, 1, 0, True, 0), replicas.items())


def test_every_metric_of_the_table_is_told_and_no_other(two, world):
    ruler, _ = two
    world.write_topic("t", {0: [1, 2, 3]})
    report(world, 1)
    ruler.requests.requested(1, 3)

    told = {name.split(" ")[0] for name in ruler.all()}

    assert told - {"regency_build_info"} == {sample for metric in CONTROLLER_METRICS for sample in metric.samples}


@pytest.mark.parametrize("who", [0, 1], ids=["ruling", "not ruling"])
def test_openmetrics_says_the_same_as_prometheus_text(two, world, who):
    scraped = two[who]
    world.write_topic("t", {0: [1, 2, 3]})
    report(world, 1)
    read = Exposition([scraped.metrics], world.clock).render(True).decode()

    strict = {
        sample.name + "".join(f" {value}" for _, value in sorted(sample.labels.items())): sample.value
        for family in openmetrics.text_string_to_metric_families(read)
        for sample in family.samples
        if not sample.name.startswith(("python", "process"))
    }

    assert strict == scraped.all()


def test_names_are_those_that_dashboards_and_alerts_ask_for():
    # as jmx_exporter's and Strimzi's rules make them of the MBeans, and as kafka_exporter has them
    exported = {metric.exported for metric in CONTROLLER_METRICS}
    gauges = """activecontrollercount offlinepartitionscount preferredreplicaimbalancecount controllerstate
        globaltopiccount globalpartitioncount topicstodeletecount replicastodeletecount topicsineligibletodeletecount
        replicasineligibletodeletecount activebrokercount fencedbrokercount"""
    timers = """controllerchange leaderelection topicchange topicdeletion partitionreassignment autoleaderbalance
        manualleaderbalance controlledshutdown isrchange leaderandisrresponsereceived logdirchange controllershutdown
        uncleanleaderelectionenable topicuncleanleaderelectionenable listpartitionreassignment"""
    partition = """current_offset oldest_offset leader replicas in_sync_replica leader_is_preferred
        under_replicated_partition"""

    assert {KAFKA + name for name in gauges.split()} == {name for name in exported if name.startswith(KAFKA)}
    stats = "kafka_controller_controllerstats_"
    assert {f"{stats}{name}rateandtimems" for name in timers.split()} | {f"{stats}uncleanleaderelections_total"} == {
        name for name in exported if name.startswith(stats)
    }
    assert {f"kafka_topic_partition_{name}" for name in partition.split()} <= exported
    assert {"kafka_brokers", "kafka_broker_info", "kafka_topic_partitions"} <= exported
    manager = "kafka_controller_controllereventmanager_"
    assert {manager + "eventqueuesize", manager + "eventqueuetimems"} <= exported
    assert {QUEUES + name for name in ("totalqueuesize", "queuesize", "requestrateandqueuetimems")} <= exported


def test_counts_follow_the_cluster(two, world):
    ruler, _ = two
    world.write_topic("t", {0: [1, 2, 3], 1: [2, 1, 3]})
    world.write_topic("alone", {0: [3]})
    well = ruler.of(KAFKA)

    world.kill_broker(3)
    world.kill_broker(2)
    struck = ruler.of(KAFKA)
    world.start_brokers(2, 3)
    healed = ruler.of(KAFKA)

    assert well == {
        "activecontrollercount": 1,
        "globaltopiccount": 2,
        "globalpartitioncount": 3,
        "activebrokercount": 3,
    }
    assert struck == {**well, "activebrokercount": 1, "offlinepartitionscount": 1, "preferredreplicaimbalancecount": 2}
    assert healed == {**well, "preferredreplicaimbalancecount": 1}


def test_deletions_are_counted_and_reset_when_their_controller_resigns(two, world):
    ruler, other = two
    world.write_topic("t", {0: [1, 2, 3], 1: [2, 1, 3]})
    release = world.hold_stops(1)
    world.kill_broker(3)
    world.mark("t")
    backlog = {
        "topicstodeletecount": 1,
        "replicastodeletecount": 4,
        "topicsineligibletodeletecount": 1,
        "replicasineligibletodeletecount": 2,
    }
    deleting = ruler.of(KAFKA)
    assert {name: deleting.get(name) for name in backlog} == backlog
    assert not [name for name in ruler.all() if "kafka_topic" in name]

    ruler.candidate.ask(Resign())
    world.settle()

    assert (ruler.of(KAFKA), other.of(KAFKA)["activecontrollercount"]) == ({}, 1)
    taken_over = other.of(KAFKA)
    assert {name: taken_over.get(name) for name in backlog} == backlog

    release(1)
    world.start_broker(3)
    assert other.of(KAFKA) == {"activecontrollercount": 1, "activebrokercount": 3}


def test_a_scrape_during_a_resignation_does_not_tell_of_a_ruler_with_nothing_offline(two, world, monkeypatch):
    # KafkaOfflinePartitions keeps for an hour what the last one who ruled has said
    ruler, _ = two
    world.write_topic("alone", {0: [3]})
    world.kill_broker(3)
    before = ruler.of(KAFKA)
    copies = ruler.candidate.controller.term.copies
    take = copies.take

    def resign_meanwhile():
        taken = take()
        ruler.candidate.session.expire()
        ruler.candidate.loop.process(ruler.candidate.queue.poll())
        assert ruler.candidate.controller.term is None
        return taken

    monkeypatch.setattr(copies, "take", resign_meanwhile)
    during = ruler.of(KAFKA)

    assert (before["activecontrollercount"], before["offlinepartitionscount"]) == (1, 1)
    assert (during["activecontrollercount"], during["offlinepartitionscount"]) == (1, 1)
    assert "activecontrollercount" not in ruler.of(KAFKA)


def test_who_does_not_rule_tells_nothing_of_what_it_knew(two, world):
    ruler, other = two
    world.write_topic("t", {0: [1, 2, 3]})
    report(world, 1)
    ruler.requests.requested(1, 3)
    labelled = {name for name in ruler.all() if " " in name}
    assert {"kafka_brokers", "regency_controller_epoch"} <= set(ruler.all())

    ruler.candidate.session.expire()
    ruler.candidate.loop.process(ruler.candidate.queue.poll())

    resigned = ruler.all()
    assert resigned["regency_controller_epoch"] == 0
    gone = {name for name in labelled if "quantile" not in name and name not in resigned}
    assert {name.split(" ")[0] for name in gone} >= {
        "kafka_broker_info",
        "kafka_topic_partition_leader",
        "kafka_topic_partition_current_offset",
        "regency_controller_failover_seconds",
        "regency_controller_unacknowledged_states",
        QUEUES + "queuesize",
        QUEUES + "requestrateandqueuetimems_count",
    }
    assert not [name for name in resigned if name.startswith(("kafka_topic", "kafka_broker"))]
    assert not [name for name in other.all() if name.startswith(("kafka_topic", "kafka_broker"))]


def test_who_lost_its_session_is_not_counted_though_it_has_not_noticed(two, world):
    ruler, _ = two
    ruler.candidate.session.expire()

    assert ruler.candidate.rules, "its thread has not come to it"
    assert ruler.of(KAFKA) == {}
    world.settle()
    assert [each.of(KAFKA).get("activecontrollercount", 0) for each in two] == [1, 0]


def test_partitions_are_told_as_kafka_exporter_does(two, world):
    ruler, _ = two
    world.write_topic("t", {0: [1, 2, 3], 1: [2, 3]})
    world.write_topic("new", {0: [9]})
    world.kill_broker(2)
    report(world, 1)
    report(world, 3, high_watermark=-1)

    told = {name: value for name, value in ruler.all().items() if name.startswith(("kafka_topic", "kafka_broker"))}

    assert told == {
        "kafka_brokers": 2,
        "kafka_broker_info host1:9001 1": 1,
        "kafka_broker_info host3:9003 3": 1,
        "kafka_topic_partitions t": 2,
        "kafka_topic_partitions new": 1,
        "kafka_topic_partition_current_offset 0 t": 5,
        "kafka_topic_partition_oldest_offset 0 t": 2,
        "kafka_topic_partition_oldest_offset 1 t": 2,
        "kafka_topic_partition_leader 0 t": 1,
        "kafka_topic_partition_leader 1 t": 3,
        "kafka_topic_partition_replicas 0 t": 3,
        "kafka_topic_partition_replicas 1 t": 2,
        "kafka_topic_partition_replicas 0 new": 1,
        "kafka_topic_partition_in_sync_replica 0 t": 2,
        "kafka_topic_partition_in_sync_replica 1 t": 1,
        "kafka_topic_partition_in_sync_replica 0 new": 0,
        "kafka_topic_partition_leader_is_preferred 0 t": 1,
        "kafka_topic_partition_leader_is_preferred 1 t": 0,
        "kafka_topic_partition_leader_is_preferred 0 new": 0,
        "kafka_topic_partition_under_replicated_partition 0 t": 1,
        "kafka_topic_partition_under_replicated_partition 1 t": 1,
        "kafka_topic_partition_under_replicated_partition 0 new": 1,
    }


@pytest.mark.parametrize("what", ["nothing", "follower", "other topic"])
def test_no_offset_is_told_that_the_leader_has_not_reported_of_this_topic(two, world, what):
    ruler, _ = two
    world.write_topic("t", {0: [1, 2, 3]})
    if what == "follower":
        report(world, 2)
    elif what == "other topic":
        report(world, 1, topic_id=world.term.context.topic_id("unknown"))

    assert not [name for name in ruler.all() if "offset" in name]


def test_too_many_partitions_are_left_out_and_counted(two, world, caplog):
    ruler, _ = two
    world.write_topic("t", {0: [1], 1: [1], 2: [1]})
    few = Scraped(world, ruler.candidate, max_partitions=2)

    few.all()
    world.clock.advance(2_000)
    told = few.all()

    assert told["regency_controller_partitions_left_out"] == 3
    assert [record.getMessage()[:41] for record in caplog.records] == ["3 partitions have no series of their own "]
    assert (told["kafka_topic_partitions t"], told[KAFKA + "globalpartitioncount"]) == (3, 3)
    assert not [name for name in told if name.startswith("kafka_topic_partition_")]
    assert Scraped(world, ruler.candidate, max_partitions=3).all()["regency_controller_partitions_left_out"] == 0


def test_a_scrape_may_ask_for_some_names_only(two, world):
    ruler, _ = two
    world.write_topic("t", {0: [1, 2]})
    report(world, 1)

    assert ruler.all("kafka_topic_partition_current_offset") == {"kafka_topic_partition_current_offset 0 t": 5}
    assert ruler.all("kafka_topic_partition_leader") == {"kafka_topic_partition_leader 0 t": 1}


def test_what_brokers_have_not_acknowledged_is_counted_by_broker(two, world):
    ruler, _ = two
    world.write_topic("t", {0: [1, 2, 3], 1: [1, 2]})
    term = world.term
    term.batch.host((2, 3), T0)
    term.batch.host((2,), T1)
    term.hand_over()
    waiting = ruler.all()
    sender = ruler.candidate.channels.senders[2]
    outgoing = sender.next(world.clock.monotonic_ms())
    world.clock.advance(2_500)
    sent = ruler.all()

    states, oldest = "regency_controller_unacknowledged_states ", "regency_controller_oldest_unacknowledged_seconds "
    assert [waiting[states + each] for each in "123"] == [0, 2, 1]
    assert [waiting[f"{QUEUES}queuesize {each}"] for each in "123"] == [0, 2, 1]
    assert (waiting[QUEUES + "totalqueuesize"], sent[QUEUES + "totalqueuesize"]) == (3, 1)
    assert ([sent[states + each] for each in "123"], sent[oldest + "2"]) == ([0, 2, 1], 2.5)
    sender.on_answer(world.agents[2].call(sender.encode(outgoing, {}, "PLAINTEXT")), world.clock.monotonic_ms())
    world.settle()
    assert [ruler.all()[states + each] for each in "123"] == [0, 0, 0]


def test_times_of_events_and_requests(two, world):
    ruler, _ = two
    before = ruler.all()
    ruler.candidate.queue.put(BrokersChanged())
    world.clock.advance(70)
    assert ruler.all()["kafka_controller_controllereventmanager_eventqueuesize"] == 1
    world.settle()
    ruler.requests.requested(2, 30)
    ruler.requests.requested(99, 30)
    after = ruler.all()

    def grown(name: str) -> float:
        return after[name] - before.get(name, 0)

    assert grown("kafka_controller_controllerstats_leaderelectionrateandtimems_count") == 1
    assert grown("kafka_controller_controllereventmanager_eventqueuetimems_count") == 1
    assert grown("kafka_controller_controllereventmanager_eventqueuetimems_sum") == 70
    assert grown("regency_controller_events_total broker_change") == 1
    assert after["kafka_controller_controllereventmanager_eventqueuetimems 0.50"] == pytest.approx(70, rel=0.02)
    assert after[f"{QUEUES}requestrateandqueuetimems_count 2"] == 1
    assert after[f"{QUEUES}requestrateandqueuetimems_sum 2"] == 30
    assert f"{QUEUES}requestrateandqueuetimems_count 99" not in after


def test_an_event_without_a_timer_is_handled_and_counted(two, world):
    # ControllerEventManagerTest.testEventWithoutRateMetrics
    ruler, _ = two
    before = ruler.all()
    ruler.candidate.queue.put(SnapshotWanted())
    world.settle()
    after = ruler.all()

    assert after["regency_controller_events_total snapshot_wanted"] == 1
    grown = {name for name in after if name.endswith("rateandtimems_count") and after[name] != before[name]}
    assert grown == set()
    waited = "kafka_controller_controllereventmanager_eventqueuetimems_count"
    assert after[waited] == before[waited] + 1


def test_the_state_is_that_of_the_event_in_hand_also_when_it_fails(two, world):
    ruler, _ = two
    seen = []
    loop, events = ruler.candidate.loop, ruler.events

    def failing(_event: object) -> None:
        world.clock.advance(40)
        seen.append((ruler.all()[KAFKA + "controllerstate"], events.in_hand_ms()))
        raise RuntimeError("broken")

    loop._process = events.timed(failing)
    with pytest.raises(RuntimeError):
        loop.process(BrokersChanged())

    assert seen == [(2, 40)]
    assert (ruler.all()[KAFKA + "controllerstate"], events.in_hand_ms()) == (0, 0)
    assert events.handled[ControllerState.BROKER_CHANGE].count == 1


def test_epoch_failovers_and_their_phases(two, world):
    ruler, _ = two
    first = ruler.all()
    ruler.candidate.ask(Resign())
    world.settle()
    other = next(each for each in two if each.candidate.rules)
    second = other.all()

    assert (first["regency_controller_epoch"], second["regency_controller_epoch"]) == (1, 2)
    assert (first["regency_controller_failovers_total"], second["regency_controller_failovers_total"]) == (1, 1)
    phases = {name.split(" ", 1)[1] for name in second if name.startswith("regency_controller_failover_seconds")}
    assert phases == {name for name, _ in other.candidate.controller.failover} >= {"topics", "states", "elections"}
