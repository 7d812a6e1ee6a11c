"""What clients ask a controller for at bad moments: more partitions, other settings, that it or a broker leaves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from regency.controller.brokers.leaving import SteerBroker
from regency.controller.events import Request
from regency.controller.term import Resign
from regency.controller.topics.config_changes import AlterConfigs, ConfigAlteration, ResourceType
from regency.controller.topics.partition_creation import CreatePartitions, MorePartitions
from regency.model.ids import NO_BROKER_EPOCH, BrokerId
from regency.model.settings.dynamic import ConfigChange, Operation
from simulation.admin import AGAIN_US, TIMEOUT_MS, ruling_endpoint
from simulation.cluster.addresses import CLIENTS
from simulation.cluster.controller import Asked
from simulation.cluster.edges import ask
from simulation.faults.admin_faults import BROKER_SETTINGS, TOPIC_SETTINGS
from simulation.faults.plan import Fault, Kind
from simulation.faults.stage import Deed, Stage
from simulation.kernel.scheduler import Process
from simulation.network import NetFailed
from simulation.world import Host, World

TRIES: Final = 5
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


class Client:
    """Asks until somebody answers, or it has had enough. The same request may so be done twice."""

    def __init__(
        self, world: World, make: Callable[[], Request[Any]], told: Callable[[Any], str], *, tries: int = TRIES
    ) -> None:
        self._world = world
        self._make = make
        self._told = told
        self._tries = tries
        self._process = Process(world.scheduler, "client")
        world.scheduler.spawn(self._process, "client", self._run)

    def _run(self) -> None:
        world = self._world
        for _ in range(self._tries):
            address = ruling_endpoint(world)
            if address is not None:
                request = Asked(self._make)
                answer = ask(world.scheduler, world.network, self._process, CLIENTS, address, request, TIMEOUT_MS)
                if not isinstance(answer, NetFailed | Exception):
                    world.note("admin", "client", "is answered %s", self._told(answer))
                    return
            world.scheduler.sleep_us(AGAIN_US)


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
            lambda: CreatePartitions(wanted, validate_only=False),
            lambda answer: str([each.error.name for each in answer]),
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
            lambda: AlterConfigs(tuple(resources), incremental=True, validate_only=False),
            lambda answer: str([each.error.name for each in answer]),
        )

    def resign(self, fault: Fault, host: Host) -> None:
        """Somebody asks the controller to resign, once: by chance twice before another rules."""
        del host
        for _ in range(1 if fault.detail < 0.7 else 2):
            Client(self._world, Resign, lambda epoch: f"epoch {epoch} ends", tries=1)

    def shut_down(self, fault: Fault, host: Host) -> None:
        """Somebody wants a broker to leave, in whichever incarnation it lives or in this one; it comes back."""
        agent = self._world.agents.get(host.broker)
        epoch = NO_BROKER_EPOCH if agent is None or fault.detail < 0.5 else agent.broker_epoch()
        Client(self._world, lambda: SteerBroker(host.broker, epoch), lambda _answer: "something", tries=2)

    @staticmethod
    def _alteration(kind: ResourceType, name: str, key: str, value: str) -> ConfigAlteration:
        operation = Operation.SET if value else Operation.DELETE
        return ConfigAlteration(kind, name, (ConfigChange(key, operation, value),))
