"""A scripted ZooKeeper with the rules looking on: what the tests of the rules are told with."""

from __future__ import annotations

from uuid import UUID

from regency.model import znodes
from regency.model.facts import LeaderAndIsr, LeaderIsrAndControllerEpoch, ReplicaAssignment, TopicAssignment
from regency.model.ids import BrokerId, ControllerEpoch, LeaderEpoch, TopicId, TopicPartition
from regency.model.znodes import paths
from regency.runtime.zookeeper.session import Check, Create, Op, SetData
from simulation.judging.facts import Facts
from simulation.judging.zookeeper_rules import ZookeeperRules
from simulation.zookeeper.model import Model, Session

TOPIC = "blue"
TP = TopicPartition(TOPIC, 0)
STATE = paths.partition_state(TP)
ID, OTHER_ID = TopicId(UUID(int=1)), TopicId(UUID(int=2))


class Story:
    """The model of ZooKeeper, watched by the rules, and what controllers and agents do there."""

    def __init__(self) -> None:
        self.now_us = 0
        self.facts = Facts()
        self.rules = ZookeeperRules(self.facts, lambda: self.now_us)
        self.model = Model()
        self.model.on_commit(self.rules.on_commit)
        self.admin = self.session()
        for path in ("/consumers", *paths.PERSISTENT_PARENTS[1:], paths.CONTROLLER_EPOCH):
            self.multi(self.admin, Create(path, b"0" if path == paths.CONTROLLER_EPOCH else b""))

    def session(self) -> Session:
        return self.model.open_session(3_000, 0)[1]

    def multi(self, session: Session, *ops: Op) -> None:
        _, results = self.model.multi(session, ops)
        assert all(result.error == 0 for result in results), [result.error for result in results]

    def version(self, path: str) -> int:
        return self.model.tree.nodes[path].version

    def fence(self) -> Check:
        return Check(paths.CONTROLLER_EPOCH, self.version(paths.CONTROLLER_EPOCH))

    def win(self, broker: int, session: Session, *, epoch: int | None = None) -> None:
        won = self.rules.controller_epoch + 1 if epoch is None else epoch
        data = znodes.encode_controller(BrokerId(broker), timestamp_ms=0)
        version = self.version(paths.CONTROLLER_EPOCH)
        self.multi(
            session,
            Create(paths.CONTROLLER, data, ephemeral=True),
            SetData(paths.CONTROLLER_EPOCH, znodes.encode_controller_epoch(ControllerEpoch(won)), version),
        )

    def register(self, broker: int) -> Session:
        session = self.session()
        self.multi(session, Create(paths.broker(BrokerId(broker)), b"", ephemeral=True))
        return session

    def topic(self, *replicas: int, topic_id: TopicId | None = ID) -> bytes:
        assignment = ReplicaAssignment(tuple(map(BrokerId, replicas)))
        return znodes.encode_topic(TopicAssignment(TOPIC, {0: assignment}, topic_id))

    def state(self, leader: int, epoch: int, *isr: int, controller_epoch: int | None = None) -> bytes:
        decided = LeaderAndIsr(BrokerId(leader), LeaderEpoch(epoch), tuple(map(BrokerId, isr)))
        ruling = self.rules.controller_epoch if controller_epoch is None else controller_epoch
        return znodes.encode_state(LeaderIsrAndControllerEpoch(decided, ControllerEpoch(ruling)))

    def begin(self) -> None:
        """Three brokers, a controller, and a topic led by 1 in leader epoch 0."""
        self.agents = {broker: self.register(broker) for broker in (1, 2, 3)}
        self.controller = self.session()
        self.win(1, self.controller)
        self.multi(self.controller, self.fence(), Create(paths.topic(TOPIC), self.topic(1, 2, 3)))
        self.multi(self.controller, self.fence(), Create(paths.topic_partitions(TOPIC)))
        self.multi(
            self.controller, self.fence(), Create(paths.topic_partition(TP)), Create(STATE, self.state(1, 0, 1, 2, 3))
        )

    def decide(self, data: bytes) -> None:
        self.multi(self.controller, self.fence(), SetData(STATE, data, self.version(STATE)))

    def change_isr(self, broker: int, data: bytes) -> None:
        check = Check(paths.broker(BrokerId(broker)), None)
        self.multi(self.agents[broker], check, SetData(STATE, data, self.version(STATE)))

    def end_session(self, session: Session) -> None:
        self.model.close_session(session)
