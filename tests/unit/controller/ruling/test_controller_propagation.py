"""What brokers know when others come and go: their metadata caches, fed with what the controller sends."""

from __future__ import annotations

from regency.broker_agent.control.messages import decode_update
from regency.broker_agent.control.metadata_cache import MetadataCache
from regency.model.ids import TopicPartition
from regency.model.znodes import paths
from regency.protos import control_pb2 as pb
from regency.runtime.zookeeper.session import Delete

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def cached(world, broker):
    """The view of a broker that applied all metadata it was ever sent."""
    cache = MetadataCache()
    for update in world.agents[broker].of(pb.UpdateMetadataRequest):
        assert cache.apply(decode_update(update)) is None
    return cache.current


def replicas_in(world, broker, partition=T0):
    """ISR, offline replicas and replicas of a partition as a broker knows them."""
    known = cached(world, broker).partition(partition)
    return known.isr, known.offline, known.replicas


def test_metadata_propagation_on_broker_change(ruled):
    # ControllerIntegrationTest.testMetadataPropagationOnBrokerChange
    ruled.write_topic("t", {0: [1, 3], 1: [1, 2]})

    ruled.kill_broker(3)

    for broker in (1, 2):
        assert replicas_in(ruled, broker) == ((1,), (3,), (1, 3))
        assert replicas_in(ruled, broker, T1) == ((1, 2), (), (1, 2))

    ruled.start_broker(3)

    for broker in (1, 2, 3):
        assert replicas_in(ruled, broker) == ((1,), (), (1, 3))
        assert replicas_in(ruled, broker, T1) == ((1, 2), (), (1, 2))


def test_metadata_propagation_for_offline_replicas(world):
    # ControllerIntegrationTest.testMetadataPropagationForOfflineReplicas
    world.start_brokers(1, 2, 3)
    world.candidate(1)
    world.write_topic("t", {0: [2]})
    for broker in (3, 2):
        world.kill_broker(broker)
    world.candidates.pop().session.close()
    world.kill_broker(1)

    world.start_broker(1)
    world.candidate(1)
    world.start_broker(3)

    for broker in (1, 3):
        assert cached(world, broker).partition(T0).leader == -1
        assert replicas_in(world, broker) == ((2,), (2,), (2,))


def test_metadata_propagation_on_broker_shutdown_with_no_replicas(ruled):
    # ControllerIntegrationTest.testMetadataPropagationOnBrokerShutdownWithNoReplicas, KAFKA-13225
    ruled.write_topic("t", {0: [2]})
    ruled.kill_broker(2)

    ruled.kill_broker(3)

    assert sorted(cached(ruled, 1).brokers) == [1]


def test_topic_partition_expansion_with_offline_replica(ruled):
    # ControllerIntegrationTest.testTopicPartitionExpansionWithOfflineReplica
    ruled.write_topic("t", {0: [1]})
    ruled.kill_broker(2)

    ruled.write_topic("t", {0: [1], 1: [2, 1]})

    assert ruled.state("t", 1) == (1, (1,), 0, 1)
    assert replicas_in(ruled, 3, T1) == ((1,), (2,), (2, 1))


def test_bounced_broker_hosts_and_knows_what_it_did_before(ruled):
    # ControllerIntegrationTest.testControllerDetectsBouncedBrokers
    ruled.write_topic("t", {0: [1, 2]})

    ruled.ensemble.multi(0, [Delete(paths.broker(2), None)])  # the controller does not look in between
    ruled.start_broker(2)

    assert list(ruled.agents[2].states) == [T0]
    assert list(cached(ruled, 2).topics) == ["t"]
    assert sorted(cached(ruled, 2).brokers) == [1, 2, 3]


def test_topics_with_an_id_of_their_own_that_other_brokers_know_too(ruled):
    # ControllerIntegrationTest.testTopicIdsAreAdded, testTopicIdPersistsThroughControllerReelection, …Restart
    ruled.write_topic("t", {0: [1]})
    ruled.write_topic("u", {0: [2]})
    before = {name: ruled.term.context.topic_id(name) for name in ("t", "u")}
    assert len(set(before.values())) == 2

    ruled.candidate(2)
    ruled.candidates.pop(0).session.close()
    ruled.settle()

    assert ruled.term.epoch == 2
    assert {name: ruled.term.context.topic_id(name) for name in ("t", "u")} == before
    assert {topic_id: name for name, topic_id in before.items()} == cached(ruled, 3).names


def test_topic_id_stays_when_partitions_are_added_and_goes_with_its_topic(ruled):
    # ControllerIntegrationTest.testTopicIdMigrationAndHandling
    ruled.write_topic("t", {0: [1]})
    before = ruled.term.context.topic_id("t")

    ruled.write_topic("t", {0: [1], 1: [2]})
    assert ruled.term.context.topic_id("t") == before

    ruled.mark("t")
    assert before not in cached(ruled, 3).names
    ruled.write_topic("t", {0: [1]})
    assert ruled.term.context.topic_id("t") != before
