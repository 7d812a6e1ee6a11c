"""Whether everything is well: what must be so some time after the last fault has healed and producers have stopped.

Pure: it looks, and gives reasons. Whoever asks decides how long to wait.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import islice

from regency.broker_agent.replication.api import Role
from regency.broker_agent.replication.followers import Committed
from regency.broker_agent.replication.partition import Partition
from regency.controller.controller import Controller
from regency.controller.state.invariants import violations
from regency.controller.state.reconcile_rules import expected
from regency.model.facts import LeaderIsrAndControllerEpoch
from regency.model.hosting import replaced, replica_number, topic_number
from regency.model.ids import ZERO_TOPIC_ID, BrokerId, TopicPartition
from regency.model.settings.dynamic import broker_log_config
from regency.model.settings.log_config import applicable_log_config
from regency.model.znodes.paths import EVERY_BROKER
from simulation.cluster.agent import SimAgent
from simulation.cluster.controller import SimController
from simulation.judging.compaction_rules import CompactionRules
from simulation.judging.log_rules import LogCursor, Peek
from simulation.judging.picture import Committed as CommittedZnodes
from simulation.judging.picture import Picture

SENDER = "sender to "
"""How the names of threads begin that send brokers what they are wanted to do."""

MOST = 12
"""Reasons given."""

Agents = Mapping[BrokerId, SimAgent]


def not_converged(
    agents: Agents,
    controllers: Mapping[BrokerId, SimController],
    committed: CommittedZnodes,
    peek: Peek,
    *,
    removed: Collection[str] = (),
    reconciles: bool = True,
    compaction: CompactionRules | None = None,
) -> list[str]:
    """The first reasons why all is not well yet; none where it is.

    Of topics in `removed`, whose znodes somebody took away, logs stay: nobody has asked for their deletion. Replicas of
    them are stopped by who reconciles; where nobody does they stay too.
    """
    served_on = () if reconciles else removed
    picture = Picture(committed)

    def reasons() -> Iterator[str]:
        yield from _of_registrations(agents, picture)
        yield from _of_controllers(controllers, picture)
        if picture.notifications:
            yield f"/isr_change_notification still holds {', '.join(picture.notifications)}"
        if picture.failed_directories:
            yield f"/log_dir_event_notification still holds {', '.join(picture.failed_directories)}"
        if picture.elections_asked:
            yield "elections are still asked for in /admin/preferred_replica_election"
        yield from _of_reassignments(picture)
        for name in picture.markers:
            yield f"{name} is still to be deleted"
        for partition, replicas in picture.partitions():
            yield from _of_partition(agents, picture, partition, replicas, peek, compaction)
        for broker, agent in agents.items():
            if agent.process.alive:
                yield from _of_reports(broker, agent, controllers, picture, served_on)
                yield from _of_metadata(broker, agent, picture)
                yield from _of_disks(broker, agent, picture, removed)
                yield from _of_settings(broker, agent, picture)

    return list(islice(reasons(), MOST))


def _of_reassignments(picture: Picture) -> Iterator[str]:
    if picture.is_asked:
        yield "reassignments are still asked for in /admin/reassign_partitions"
    for name, topic in picture.topics.items():
        for number, assignment in sorted(topic.partitions.items()):
            if assignment.is_reassigning or assignment.deleting:
                yield f"{name}-{number} is still being reassigned: {assignment}"


# Who is there


def _of_registrations(agents: Agents, picture: Picture) -> Iterator[str]:
    for broker, agent in agents.items():
        registered = picture.brokers.get(broker)
        if not agent.process.alive:
            yield f"broker {broker} is dead{'' if registered is None else ' and still registered'}"
        elif agent.leaving:
            yield f"broker {broker} is leaving"
        elif agent.logs is not None and agent.logs.offline_dirs:
            yield f"broker {broker} makes no use of {', '.join(sorted(map(str, agent.logs.offline_dirs)))}"
        elif registered is None:
            yield f"broker {broker} lives and is not registered"
        elif agent.broker_epoch() != registered:
            yield f"broker {broker} is registered as {registered} and takes itself for {agent.broker_epoch()}"


def _of_controllers(controllers: Mapping[BrokerId, SimController], picture: Picture) -> Iterator[str]:
    ruling = [
        (broker, each)
        for broker, each in controllers.items()
        if each.process.alive and each.controller is not None and each.controller.view.ruling
    ]
    if len(ruling) != 1:
        yield f"{len(ruling)} controllers rule: {', '.join(str(broker) for broker, _ in ruling)}"
        return
    (broker, sim), *_ = ruling
    for other, each in controllers.items():
        if each.process.alive and each.controller is not None:
            yield from _of_terms(other, each, each.controller)
    session = sim.session
    if picture.controller != broker or session is None or session.session_id != picture.controller_session:
        yield f"controller {broker} rules, /controller names {picture.controller}"
    assert sim.controller is not None
    if sim.controller.unacknowledged:
        yield f"{sim.controller.unacknowledged} states are not acknowledged to controller {broker}"
    if sim._queue is not None and len(sim._queue):
        yield f"{len(sim._queue)} events wait at controller {broker}"
    yield from _of_context(sim.controller, picture)


def _of_terms(broker: BrokerId, sim: SimController, controller: Controller) -> Iterator[str]:
    """What terms that are over have left: threads that go on sending."""
    term = controller._term
    senders = sum(actor.name.startswith(SENDER) for actor in sim.process.actors)
    channels = 0 if term is None else len(term.channels.backlogs())
    if senders > channels:
        yield f"{senders} threads of controller {broker} send, it has channels to {channels} brokers"


def _of_context(controller: Controller, picture: Picture) -> Iterator[str]:
    term = controller._term
    if term is None:
        return
    context = term.context
    epochs = {broker.id: broker.epoch for broker in context.brokers.values()}
    if epochs != picture.brokers:
        yield f"the controller knows brokers {_sorted(epochs)}, registered are {_sorted(picture.brokers)}"
    if context.shutting_down:
        yield f"the controller takes {sorted(context.shutting_down)} for shutting down"
    known = {name for name in context.topics if not context.is_queued_for_deletion(name)}
    if known != picture.topics.keys():
        yield f"the controller knows topics {sorted(known)}, there are {sorted(picture.topics)}"
    for name, topic in picture.topics.items():
        if topic.topic_id != context.topic_id(name):
            yield f"{name} has the id {topic.topic_id}, the controller knows {context.topic_id(name)}"
    for partition, _ in picture.partitions():
        assignment = picture.topics[partition.topic].partitions[partition.partition]
        if context.assignment(partition) != assignment:
            yield f"{partition} is assigned {assignment}, the controller knows {context.assignment(partition)}"
        if context.leadership(partition) != picture.states.get(partition):
            held = context.leadership(partition)
            yield f"{partition} has the {_told(picture.states.get(partition))}, the controller knows the {_told(held)}"
    yield from violations(context)


def _sorted(epochs: Mapping[BrokerId, int]) -> str:
    return ", ".join(f"{broker} as {epoch}" for broker, epoch in sorted(epochs.items()))


def _told(state: LeaderIsrAndControllerEpoch | None) -> str:
    if state is None:
        return "state none"
    now = state.leader_and_isr
    return (
        f"leader {now.leader} in epoch {now.leader_epoch}, isr {list(now.isr)}, version {now.zk_version}, "
        f"controller epoch {state.controller_epoch}"
    )


def _of_reports(
    broker: BrokerId,
    agent: SimAgent,
    controllers: Mapping[BrokerId, SimController],
    picture: Picture,
    served_on: Collection[str],
) -> Iterator[str]:
    """What an agent hosts, what it has said of that, and what the ruling controller wants it to, as digests."""
    sim = None if picture.controller is None else controllers.get(picture.controller)
    term = None if sim is None or sim.controller is None else sim.controller._term
    if sim is None or sim.controller is None or term is None or agent.replicas is None:
        return
    wanted = hosted = beyond = 0
    numbers: set[int] = set()
    for partition in term.context.partitions():
        want = expected(term.context, broker, partition)
        if want is not None:
            topic = topic_number(want.topic_id)
            facts = (want.leader, want.leader_epoch, want.zk_version, want.role)
            number = replica_number(topic, partition.partition, *facts)
            wanted = replaced(wanted, 0, number)
            numbers.add(number)
    for told in agent.replicas.describe():
        topic = topic_number(told.topic_id)
        facts = (told.leader, told.leader_epoch, told.zk_version, told.role)
        number = replica_number(topic, told.topic_partition.partition, *facts)
        hosted = replaced(hosted, 0, number)
        if told.topic_partition.topic in served_on and number not in numbers:  # it may have been made again
            beyond = replaced(beyond, 0, number)
    last = sim.controller.reports.last(broker, agent.broker_epoch())
    reported = None if last is None else last.digest
    if replaced(hosted, beyond, 0) != wanted or reported != hosted:
        yield f"broker {broker} shall host what makes {wanted:x}, hosts {hosted:x} and has reported {reported}"


# Partitions


def _of_partition(
    agents: Agents,
    picture: Picture,
    partition: TopicPartition,
    replicas: tuple[BrokerId, ...],
    peek: Peek,
    compaction: CompactionRules | None,
) -> Iterator[str]:
    working = [broker for broker in replicas if _works(agents, picture, broker, partition)]
    state = picture.states.get(partition)
    if state is None:
        if working:
            yield f"{partition} has no state although {working} work"
        return
    now = state.leader_and_isr
    if not set(now.isr).intersection(working):
        return
    if now.leader not in working:
        yield f"{partition} has no working leader: {_told(state)}"
    elif sorted(now.isr) != sorted(working):
        leading = _hosted(agents[now.leader], partition)
        held = "" if leading is None else f"; its leader has {leading.isr} in leader epoch {leading.leader_epoch}"
        yield f"{partition} has not all of {working} in sync: {_told(state)}{held}"
    else:
        hosted = {broker: _hosted(agents[broker], partition) for broker in working}
        reasons = [
            reason for broker in working for reason in _of_role(agents[broker], partition, state, hosted[broker])
        ]
        yield from reasons or _of_logs(partition, hosted, peek, compaction)


def _works(agents: Agents, picture: Picture, broker: BrokerId, partition: TopicPartition) -> bool:
    agent = agents.get(broker)
    if agent is None or not agent.process.alive or agent.leaving or broker not in picture.brokers:
        return False
    if agent.replicas is None or agent.logs is None:
        return True
    hosted = _hosted(agent, partition)
    if hosted is None:
        return not agent.logs.offline_dirs and partition not in agent.replicas._hosting.homeless
    return hosted.role is not Role.OFFLINE


def _hosted(agent: SimAgent, partition: TopicPartition) -> Partition | None:
    return None if agent.replicas is None else agent.replicas.partitions.get(partition)


def _of_role(
    agent: SimAgent, name: TopicPartition, state: LeaderIsrAndControllerEpoch, hosted: Partition | None
) -> Iterator[str]:
    broker, now = agent.broker_id, state.leader_and_isr
    if hosted is None or agent.replicas is None:
        yield f"broker {broker} does not host {name}"
        return
    wanted = Role.LEADER if now.leader == broker else Role.FOLLOWER
    if hosted.role is not wanted or hosted.leader != now.leader or hosted.leader_epoch != now.leader_epoch:
        yield (
            f"broker {broker} is {hosted.role.value} of {name} under {hosted.leader} in leader epoch "
            f"{hosted.leader_epoch}, ZooKeeper has {_told(state)}"
        )
    elif wanted is Role.LEADER:
        if hosted.isr != Committed(now.isr, now.zk_version):
            yield f"leader {broker} of {name} has {hosted.isr}, ZooKeeper has {_told(state)}"
    else:
        pool = agent.replicas.fetchers
        if name in pool.failed:
            yield f"broker {broker} has given {name} up: {pool.failed[name]}"
        elif not pool.is_following(name):
            yield f"no fetcher of broker {broker} follows {name}"


def _of_logs(
    name: TopicPartition,
    hosted: Mapping[BrokerId, Partition | None],
    peek: Peek,
    compaction: CompactionRules | None,
) -> Iterator[str]:
    logs = {broker: partition.log for broker, partition in hosted.items() if partition is not None}
    ends = {broker: (log.high_watermark, log.log_end_offset) for broker, log in logs.items()}
    if len({offset for pair in ends.values() for offset in pair}) > 1:
        told = ", ".join(f"{broker}: {high}/{end}" for broker, (high, end) in ends.items())
        yield f"high watermarks and ends of {name} differ: {told}"
        return
    if compaction is not None and compaction.covers(name):
        found = compaction.differing(name, logs)
        yield from () if found is None else (found,)
        return
    start = max((log.log_start_offset for log in logs.values()), default=0)
    first: dict[int, object] | None = None
    for broker, log in logs.items():
        cursor = LogCursor(broker, log, peek)
        content = {at: digest for at, digest in cursor.read_to(log.log_end_offset) if at >= start}
        if first is None:
            first = dict(content)
        elif first != content:
            at = min(at for at in first.keys() | content.keys() if first.get(at) != content.get(at))
            yield f"{name}: the log of {broker} has {content.get(at)} at {at}, others have {first.get(at)}"


# Disks


def _of_disks(broker: BrokerId, agent: SimAgent, picture: Picture, removed: Collection[str]) -> Iterator[str]:
    """Nothing is in use of a topic that was deleted, nor of a partition that moved away."""
    if agent.logs is None:
        return
    for partition, log in sorted(agent.logs.all().items()):
        topic = picture.topics.get(partition.topic)
        if topic is None:
            if partition.topic not in removed:
                yield f"broker {broker} has a log of {partition}, whose topic is gone"
        elif log.topic_id not in (None, ZERO_TOPIC_ID, topic.topic_id):
            yield f"broker {broker} has a log of {partition} of {log.topic_id}, the topic is {topic.topic_id}"
        elif partition.partition in topic.partitions and broker not in topic.partitions[partition.partition].replicas:
            yield f"broker {broker} has a log of {partition}, which it is no replica of"


# Settings


def _of_settings(broker: BrokerId, agent: SimAgent, picture: Picture) -> Iterator[str]:
    """Every log goes by the settings that stand in ZooKeeper, over the broker's, those of all brokers and the file."""
    if agent.logs is None:
        return
    layers = picture.config(f"brokers/{EVERY_BROKER}"), picture.config(f"brokers/{broker}")
    base, _ = broker_log_config(agent.settings.log_config(), *layers)
    wanted = {name: applicable_log_config(base, picture.config(f"topics/{name}"))[0] for name in picture.topics}
    for partition, log in sorted(agent.logs.all().items()):
        if partition.topic in wanted and log.config != wanted[partition.topic]:
            yield f"broker {broker} keeps {partition} by {log.config}, the settings are {wanted[partition.topic]}"


# Metadata


def _of_metadata(broker: BrokerId, agent: SimAgent, picture: Picture) -> Iterator[str]:
    view = agent.metadata.current
    epochs = {node.id: node.epoch for node in view.brokers.values()}
    if epochs != picture.brokers:
        yield f"broker {broker} knows brokers {_sorted(epochs)}, registered are {_sorted(picture.brokers)}"
    if view.controller_id != picture.controller:
        yield f"broker {broker} takes {view.controller_id} for the controller, {picture.controller} is"
    leaving = sorted(node.id for node in view.brokers.values() if node.shutting_down)
    if leaving:
        yield f"broker {broker} takes {leaving} for shutting down"
    for name in sorted(view.topics.keys() - picture.topics.keys()):
        yield f"broker {broker} knows of {name}, which is gone"
    for partition, replicas in picture.partitions():
        state = picture.states.get(partition)
        if state is None:
            continue
        now, held = state.leader_and_isr, view.partition(partition)
        wanted = now.leader, now.leader_epoch, now.zk_version, now.isr, replicas
        known = None if held is None else (held.leader, held.leader_epoch, held.zk_version, held.isr, held.replicas)
        if known != wanted:
            yield f"broker {broker} knows of {partition} {known}, ZooKeeper has {wanted}"
        topic = view.topics.get(partition.topic)
        if topic is not None and topic.topic_id != picture.topics[partition.topic].topic_id:
            yield f"broker {broker} knows {partition.topic} as {topic.topic_id}"
