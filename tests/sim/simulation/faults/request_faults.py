"""What clients ask a controller for at bad moments: more partitions, other settings, that it or a broker leaves."""

from __future__ import annotations

from typing import Final

from regency.controller.brokers.leaving import SteerBroker
from regency.controller.term import Resign
from regency.controller.topics.config_changes import AlterConfigs, ConfigAlteration, ResourceType
from regency.controller.topics.partition_creation import CreatePartitions, MorePartitions
from regency.model.ids import NO_BROKER_EPOCH, BrokerId
from regency.model.settings.dynamic import ConfigChange, Operation
from simulation.admin import Client
from simulation.cluster.controller import Asked
from simulation.faults.admin_faults import BROKER_SETTINGS, TOPIC_SETTINGS
from simulation.faults.plan import Fault, Kind
from simulation.faults.stage import Deed, Stage
from simulation.world import Host

MOST_PARTITIONS: Final = 12
"""A topic grows no further: what happens to many partitions is no other than what happens to some."""


def deeds(stage: Stage) -> dict[Kind, Deed]:
    faults = _RequestFaults(stage)
    return {
        Kind.GROW_TOPIC: faults.grow_topic,
        Kind.ALTER_CONFIG: faults.alter_config,
        Kind.RESIGN: faults.resign,
        Kind.SHUT_DOWN: faults.shut_down,
    }


class _RequestFaults:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._world = stage.world

    def grow_topic(self, fault: Fault, host: Host) -> None:
        """A client wants a topic to have more partitions, placed by the controller or as it says."""
        del host
        chance = fault.chance()
        name = chance.choice(self._world.shape.topics).name
        have = self._world.partitions_of(name)
        count = have + chance.randint(1, 2)
        if not have or count > MOST_PARTITIONS:
            return
        assignments: tuple[tuple[BrokerId, ...], ...] = ()
        if chance.random() < 0.4:
            factor = next(topic.replication_factor for topic in self._world.shape.topics if topic.name == name)
            brokers = list(self._world.hosts)
            assignments = tuple(tuple(chance.sample(brokers, factor)) for _ in range(count - have))
        wanted = (MorePartitions(name, count, assignments),)
        self._stage.note("admin", "topic %s shall have %d partitions", name, count)
        Client(
            self._world,
            lambda: Asked(lambda: CreatePartitions(wanted, validate_only=False)),
            lambda answer: [each.error.name for each in answer],
        )

    def alter_config(self, fault: Fault, host: Host) -> None:
        """A client changes settings of topics, of a broker or of all brokers, several at once."""
        chance = fault.chance()
        resources: list[ConfigAlteration] = []
        for topic in chance.sample(self._world.shape.topics, chance.randint(0, len(self._world.shape.topics))):
            key, values = chance.choice(TOPIC_SETTINGS)
            resources.append(self._alteration(ResourceType.TOPIC, topic.name, key, chance.choice((*values, ""))))
        for name in chance.sample((str(host.broker), ""), chance.randint(0 if resources else 1, 2)):
            key, values = chance.choice(BROKER_SETTINGS)
            resources.append(self._alteration(ResourceType.BROKER, name, key, chance.choice((*values, ""))))
        self._stage.note("admin", "settings of %s shall change", [each.entity for each in resources])
        Client(
            self._world,
            lambda: Asked(lambda: AlterConfigs(tuple(resources), incremental=True, validate_only=False)),
            lambda answer: [each.error.name for each in answer],
        )

    def resign(self, fault: Fault, host: Host) -> None:
        """Somebody asks the controller to resign, once: by chance twice before another rules."""
        del host
        for _ in range(1 if fault.detail < 0.7 else 2):
            Client(self._world, lambda: Asked(Resign), lambda epoch: f"epoch {epoch} ends", tries=1)

    def shut_down(self, fault: Fault, host: Host) -> None:
        """Somebody wants a broker to leave, in whichever incarnation it lives or in this one; it comes back."""
        agent = self._world.agents.get(host.broker)
        epoch = NO_BROKER_EPOCH if agent is None or fault.detail < 0.5 else agent.broker_epoch()
        Client(
            self._world, lambda: Asked(lambda: SteerBroker(host.broker, epoch)), lambda _answer: "something", tries=2
        )

    @staticmethod
    def _alteration(kind: ResourceType, name: str, key: str, value: str) -> ConfigAlteration:
        operation = Operation.SET if value else Operation.DELETE
        return ConfigAlteration(kind, name, (ConfigChange(key, operation, value),))
