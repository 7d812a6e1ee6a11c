"""Every verb with which the controller writes, in a term that is over: refused, and nothing has changed.

KafkaZkClientTest's cases with `epochZkVersion + 1`, and what it does not fence: topics, their settings and ids.
"""

from __future__ import annotations

from uuid import UUID

import msgspec
import pytest

from regency.controller.store import configs as store_configs
from regency.controller.store import reassignments as store_reassignment
from regency.controller.store import topics as store_topics
from regency.controller.store.access import WriteCode
from regency.controller.store.deletions import DeletionStore
from regency.model import znodes
from regency.model.errors import ControllerMoved
from regency.model.facts import LeaderAndIsr, LeaderIsrAndControllerEpoch, ReplicaAssignment, TopicAssignment
from regency.model.ids import TopicId, TopicPartition
from regency.model.znodes import paths
from regency.runtime.zookeeper.session import SetData

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
ISR_CHANGE = f"{paths.isr_change_prefix()}0000000099"
CONFIG_CHANGE = f"{paths.config_change_prefix()}0000000099"
LOG_DIR_EVENT = f"{paths.LOG_DIR_EVENT_NOTIFICATION}/log_dir_event_0000000000"
TOPIC = TopicAssignment("t", {0: ReplicaAssignment((1, 2)), 1: ReplicaAssignment((2, 1))})
NEW_TOPIC = TopicAssignment("new", {0: ReplicaAssignment((1,))})
STATE = LeaderIsrAndControllerEpoch(LeaderAndIsr(1, 0, (1, 2)), 50)


class Verbs:
    """What a term writes with, on a ZooKeeper in which there is something to write to."""

    def __init__(self, machines) -> None:
        self.ensemble, self.store, self.access = machines.ensemble, machines.term.store, machines.term.store.access
        put = self.ensemble.put
        put(paths.topic("t"), znodes.encode_topic(TOPIC))
        put(paths.topic_config("t"), znodes.encode_config({}))
        put(paths.partition_state(T0), znodes.encode_state(STATE))
        put(paths.delete_topic("t"), b"")
        put(paths.PREFERRED_ELECTION, znodes.encode_preferred_election([T0]))
        put(paths.REASSIGN_PARTITIONS, znodes.encode_asked_moves([(T0, (3,)), (T1, (3,))]))
        put(ISR_CHANGE, znodes.encode_isr_change([T0]))
        put(LOG_DIR_EVENT, b'{"version":1,"broker":1,"event":1}')
        put(CONFIG_CHANGE, znodes.encode_config_change("topics/t"))
        node = self.ensemble.nodes[paths.topic("t")]
        self.czxid = node.czxid
        self.stored = store_topics.read_assignments(self.access, ["t"])["t"]
        self.asked = store_reassignment.read_asked(self.access)
        self.election = store_reassignment.read_preferred_election(self.access)
        self.config = store_configs.read_configs(self.access, ["topics/t"])["topics/t"]
        self.deletions = DeletionStore(self.access)

    @property
    def contents(self):
        return {path: (node.data, node.version) for path, node in self.ensemble.nodes.items()}


VERBS = {
    "create topics": lambda v: v.store.create_topics({"new": (NEW_TOPIC, {})}),
    "set topic ids": lambda v: v.store.set_topic_ids(
        [(msgspec.structs.replace(TOPIC, topic_id=TopicId(UUID(int=1))), v.stored.content)]
    ),
    "create states": lambda v: v.store.create_states({T1: STATE}),
    "update states": lambda v: v.store.update_states({T0: STATE}),
    "delete isr notifications": lambda v: v.store.delete_notifications([ISR_CHANGE]),
    "delete log dir notifications": lambda v: v.store.delete_notifications([LOG_DIR_EVENT]),
    "write settings": lambda v: store_configs.write_configs(v.access, {"topics/t": (v.config, {"retention.ms": "1"})}),
    "delete config notifications": lambda v: store_configs.delete_notifications(v.access, [CONFIG_CHANGE[-24:]]),
    "mark for deletion": lambda v: v.deletions.mark(["u"]),
    "remove markers": lambda v: v.deletions.remove_markers(["t"]),
    "remove topics": lambda v: v.deletions.remove_topics({"t": v.czxid}),
    "remove election": lambda v: store_reassignment.remove_preferred_election(v.access, v.election),
    "shorten reassignments": lambda v: store_reassignment.replace_asked(v.access, v.asked, ((T0, (3,)),)),
    "remove reassignments": lambda v: store_reassignment.replace_asked(v.access, v.asked, ()),
    "write a reassignment's step": lambda v: store_reassignment.write_topics(
        v.access, [store_reassignment.TopicChange(v.stored, TOPIC, {T0: STATE})]
    ),
    "add partitions": lambda v: store_topics.write_assignments(v.access, {"t": (v.stored, TOPIC)}),
}


@pytest.fixture
def verbs(machines) -> Verbs:
    return Verbs(machines)


@pytest.mark.parametrize("verb", VERBS)
def test_a_term_that_is_over_changes_nothing(verbs, verb):
    epoch = verbs.ensemble.nodes[paths.CONTROLLER_EPOCH]
    verbs.ensemble.multi(0, [SetData(paths.CONTROLLER_EPOCH, b"51", epoch.version)])
    before = verbs.contents

    with pytest.raises(ControllerMoved):
        VERBS[verb](verbs)

    assert verbs.contents == before


@pytest.mark.parametrize("verb", VERBS)
def test_a_term_that_is_not_over_writes(verbs, verb):
    before = verbs.contents

    VERBS[verb](verbs)

    assert verbs.contents != before


def test_propagate_isr_changes_of_a_notification_that_is_gone(verbs):
    # KafkaZkClientTest.testIsrChangeNotificationsDeletion: not there, right version: fine
    verbs.store.delete_notifications([ISR_CHANGE, ISR_CHANGE, f"{ISR_CHANGE}9"])

    assert ISR_CHANGE not in verbs.ensemble.nodes


def test_update_leader_and_isr(verbs):
    # KafkaZkClientTest.testUpdateLeaderAndIsr: one call mixes success, another version and no znode
    verbs.ensemble.put(paths.partition_state(T1), znodes.encode_state(STATE))
    stale = msgspec.structs.replace(STATE, leader_and_isr=LeaderAndIsr(1, 1, (1,), zk_version=7))

    results = verbs.store.update_states({T0: STATE, T1: stale, TopicPartition("t", 2): STATE})

    codes = [(each.code, each.zk_version) for each in results.values()]
    assert codes == [(WriteCode.WRITTEN, 1), (WriteCode.CONFLICT, -1), (WriteCode.MISSING, -1)]


def test_create_and_get_topic_partition_states_raw(verbs):
    # KafkaZkClientTest.testCreateAndGetTopicPartitionStatesRaw: one that is there stays as it is
    other = LeaderIsrAndControllerEpoch(LeaderAndIsr(2, 5, (2,)), 50)

    results = verbs.store.create_states({T0: other, T1: other})

    assert [each.code for each in results.values()] == [WriteCode.EXISTS, WriteCode.WRITTEN]
    assert verbs.ensemble.nodes[paths.partition_state(T0)].data == znodes.encode_state(STATE)
