"""The scenes: short plays in which the ruling controller goes through everything that it reacts to.

Counting begins when the stage is set. Every scene ends when the cluster is well; where a scene is cut short by a pause,
what it has broken stays broken until the deposed controller has had its time.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from regency.controller.brokers.leaving import ForgetBroker, SteerBroker
from regency.controller.channel.log_questions import ANSWER_WITHIN_MS
from regency.controller.copies import CopyCluster, CopyTopics
from regency.controller.elections.leader_elections import ASK_AGAIN_MS, ElectionType, ElectLeaders
from regency.controller.reassignment.requests import AlterReassignments, ListReassignments
from regency.controller.term import Resign
from regency.controller.topics.config_changes import AlterConfigs, ConfigAlteration, ResourceType
from regency.controller.topics.deletion_requests import DeleteTopics, ListDeletions, TopicRef
from regency.controller.topics.partition_creation import CreatePartitions, MorePartitions
from regency.model import znodes
from regency.model.ids import NO_BROKER_EPOCH, NO_LEADER, TopicPartition
from regency.model.settings.dynamic import ConfigChange, Operation
from regency.model.znodes import paths
from simulation.cluster.controller import ShutdownAsked
from simulation.paused.stage import FIRST, SECOND, THIRD, Scene, Script, Stage
from simulation.shape import RECONCILE_MS, Shape, Storage

UNCLEAN: Final = "unclean_leader_election_enable"
BLUE, RED, PINK = TopicPartition("blue", 0), TopicPartition("red", 0), TopicPartition("pink", 0)


def beginning(stage: Stage) -> Script:
    """The first start, a topic by request, and one that another tool has written, which has no id."""
    stage.count()
    yield from stage.cluster()
    yield from stage.create("blue", (FIRST, SECOND), (SECOND, THIRD), segment_bytes="1000")
    stage.write_topic("red", (THIRD, FIRST))
    yield stage.leads(THIRD, "red")
    yield stage.is_well


def failures(stage: Stage) -> Script:
    """A broker dies and returns, which leaders tell; another restarts before anybody notices.

    So does the first again, between the decision about that and its write.
    """
    yield from stage.cluster()
    yield from stage.create("blue", (SECOND, THIRD, FIRST), (THIRD, SECOND, FIRST))
    stage.count()
    stage.kill(SECOND)
    yield lambda: SECOND not in stage.in_sync("blue")
    stage.world.start_agent(SECOND)
    yield lambda: SECOND in stage.in_sync("blue")
    yield stage.is_well
    stage.restart_at("controller.election.before_write", SECOND)
    yield stage.restart(THIRD)
    yield stage.is_well


def terms(stage: Stage) -> Script:
    """A controller is asked to resign, loses its session, loses /controller, gives up and finds its own znode."""
    yield from stage.cluster()
    yield from stage.create("blue", (SECOND, THIRD, FIRST))
    stage.count()
    yield stage.ask(Resign)
    yield lambda: stage.ruler not in (None, FIRST)
    yield stage.is_well
    before = stage.ruler
    stage.world.zk_links[f"controller-{before}"].expire()
    yield lambda: stage.ruler not in (None, before)
    yield stage.is_well
    for broker in stage.world.hosts:  # whoever wins does not hear of it
        stage.world.zk_links[f"controller-{broker}"].lose_next_reply()
    yield stage.dethrone()
    yield stage.is_well
    before = stage.ruler
    assert before is not None
    gives_up = stage.lose_contact(before)
    stage.world.zk_links[f"agent-{THIRD if before == SECOND else SECOND}"].expire()
    yield gives_up
    yield lambda: stage.ruler is not None
    yield stage.is_well


def failovers(stage: Stage) -> Script:
    """Who takes over finds a dead leader, a bounced broker, notifications, and everything that tools can ask for."""
    yield from stage.cluster()
    yield from stage.create("blue", (SECOND, THIRD), (THIRD, SECOND))
    yield from stage.create("red", (FIRST, THIRD))
    yield from stage.create("grey", (FIRST, THIRD))
    stage.count()
    stage.kill(SECOND)
    yield stage.dethrone()
    yield lambda: stage.in_sync("blue") == (THIRD,)

    def meanwhile() -> None:
        moves = [(RED, (THIRD, FIRST))]
        stage.write(paths.REASSIGN_PARTITIONS, znodes.encode_asked_moves(moves))
        stage.write(paths.delete_topic("grey"), b"")
        stage.write(paths.PREFERRED_ELECTION, znodes.encode_preferred_election([RED]))
        stage.write(paths.isr_change_prefix(), znodes.encode_isr_change([BLUE]), new=True)
        stage.write(paths.log_dir_event_prefix(), znodes.encode_log_dir_event(THIRD), new=True)
        stage.write_topic("tool", (FIRST, THIRD))

    yield from stage.while_nobody_rules(meanwhile)
    yield lambda: stage.is_gone("grey")
    stage.world.start_agent(SECOND)
    yield stage.is_well
    yield from stage.while_nobody_rules(partial(stage.restart, SECOND))
    yield stage.is_well


def shutdowns(stage: Stage) -> Script:
    """A broker asks to leave and stays, one leaves in order, one is told to."""
    yield from stage.cluster()
    yield from stage.create("blue", (SECOND, THIRD), (THIRD, FIRST))
    stage.count()
    epoch = stage.world.agents[THIRD].broker_epoch()
    yield stage.ask_as_agent_does(lambda: ShutdownAsked(THIRD, epoch))
    yield stage.is_well
    before = stage.registered[SECOND]
    stage.world.stop_agent(SECOND, partial(stage.world.start_agent, SECOND))
    yield lambda: stage.registered.get(SECOND, before) != before
    yield stage.is_well
    before = stage.registered[THIRD]
    yield stage.ask(lambda: SteerBroker(THIRD, NO_BROKER_EPOCH))
    yield lambda: stage.registered.get(THIRD, before) != before
    yield stage.is_well


def departure(stage: Stage) -> Script:
    """A broker that is dead and holds nothing is gone for good, somebody says; then it comes back."""
    yield from stage.cluster()
    yield from stage.create("blue", (FIRST, THIRD))
    stage.count()
    stage.kill(SECOND)
    yield lambda: SECOND not in stage.registered
    yield 0.2
    yield stage.ask(lambda: ForgetBroker(SECOND))
    stage.world.start_agent(SECOND)
    yield stage.is_well


def growth(stage: Stage) -> Script:
    """Partitions are added by a tool and by request, settings change, and old notifications go; a copy is asked for."""
    yield from stage.cluster()
    yield from stage.create("blue", (SECOND, THIRD))
    stage.count()
    stage.write_topic("blue", (THIRD, FIRST))
    yield stage.leads(THIRD, "blue", 1)
    yield stage.ask(lambda: CreatePartitions((MorePartitions("blue", 4),), validate_only=False))
    for _ in range(2):  # created, then set
        yield stage.ask(lambda: AlterConfigs(_alterations(), incremental=True, validate_only=False))
    stage.set_config("blue", segment_bytes="300")
    yield stage.ask(lambda: CopyTopics(("blue",)))
    yield stage.ask(CopyCluster)
    yield lambda: not stage.world.zookeeper.children(paths.CONFIG_CHANGES)
    yield stage.is_well


def _alterations() -> tuple[ConfigAlteration, ...]:
    flush = ConfigChange("flush.messages", Operation.SET, "7")
    segment = ConfigChange("log.segment.bytes", Operation.SET, "5000")
    return ConfigAlteration(ResourceType.TOPIC, "blue", (flush,)), ConfigAlteration(
        ResourceType.BROKER, "2", (segment,)
    )


def deletions(stage: Stage) -> Script:
    """Topics are deleted by request and by a tool, one while a replica is dead; a tool asks for what is not there."""
    yield from stage.cluster()
    yield from stage.create("blue", (SECOND, THIRD), (THIRD, FIRST))
    yield from stage.create("red", (SECOND, THIRD))
    yield from stage.create("grey", (FIRST, THIRD))
    stage.count()
    yield stage.ask(lambda: DeleteTopics((TopicRef("blue"),)))
    yield stage.ask(ListDeletions)
    yield lambda: stage.is_gone("blue")
    stage.kill(SECOND)
    yield lambda: SECOND not in stage.registered
    stage.write(paths.delete_topic("red"), b"")
    stage.write(paths.delete_topic("nobody"), b"")
    yield lambda: stage.is_gone("nobody")
    yield stage.dethrone()
    stage.world.start_agent(SECOND)
    yield lambda: stage.is_gone("red")
    yield stage.is_well


def reassignments(stage: Stage) -> Script:
    """Replicas are added and removed, a reassignment is replaced while a target is dead, and another cancelled."""
    yield from stage.cluster()
    yield from stage.create("blue", (FIRST, SECOND), (SECOND, FIRST))
    yield from stage.create("red", (FIRST, SECOND))
    stage.count()
    yield stage.ask(lambda: AlterReassignments(((BLUE, (FIRST, SECOND, THIRD)),)))
    yield lambda: stage.in_sync("blue") == (FIRST, SECOND, THIRD)
    yield stage.is_well
    yield stage.ask(lambda: AlterReassignments(((BLUE, (THIRD, FIRST)),)))
    yield stage.is_well
    stage.kill(SECOND)
    yield lambda: stage.in_sync("red") == (FIRST,)
    moves = [(RED, (SECOND, THIRD)), (BLUE, (FIRST, SECOND)), (TopicPartition("blue", 1), (THIRD, FIRST))]
    stage.write(paths.REASSIGN_PARTITIONS, znodes.encode_asked_moves(moves))
    yield lambda: stage.replicas("red").is_reassigning and stage.replicas("blue").is_reassigning
    yield lambda: not stage.replicas("blue", 1).is_reassigning
    yield stage.ask(lambda: ListReassignments(None))
    yield stage.ask(lambda: AlterReassignments(((RED, (THIRD, FIRST)), (BLUE, None))))
    yield stage.dethrone()
    stage.world.start_agent(SECOND)
    yield stage.is_well


def removal(stage: Stage) -> Script:
    """A topic that is being reassigned, in vain so far, is gone: another tool has removed its znodes."""
    yield from stage.cluster()
    yield from stage.create("blue", (FIRST, SECOND))
    yield from stage.create("red", (FIRST, THIRD))
    stage.kill(THIRD)
    yield lambda: stage.in_sync("red") == (FIRST,)
    stage.count()
    stage.write(paths.REASSIGN_PARTITIONS, znodes.encode_asked_moves([(BLUE, (SECOND, THIRD))]))
    yield lambda: stage.replicas("blue").is_reassigning
    yield RECONCILE_MS / 1000  # which tries to go on
    stage.remove_topic("blue")
    yield lambda: stage.world.zookeeper.read(paths.REASSIGN_PARTITIONS) is None
    stage.world.start_agent(THIRD)
    yield stage.is_well


def elections(stage: Stage) -> Script:
    """Preferred replicas are elected by request and by a tool, and others because nobody in sync lives."""
    yield from stage.cluster()
    yield from stage.create("blue", (SECOND, FIRST))
    yield from stage.create("red", (SECOND, THIRD), **{UNCLEAN: "true"})
    yield from stage.create("grey", (SECOND, THIRD), **{UNCLEAN: "true"})
    stage.set_config("grey", **{UNCLEAN: "false"})
    stage.count()
    yield stage.restart(SECOND)
    yield stage.is_well
    yield stage.ask(lambda: ElectLeaders(ElectionType.PREFERRED, (BLUE,)))
    yield stage.restart(SECOND)
    yield stage.is_well
    stage.write(paths.PREFERRED_ELECTION, znodes.encode_preferred_election([BLUE]))
    yield stage.is_well


def unclean(stage: Stage) -> Script:
    """Nobody in sync lives: who has the longest log is asked for and elected, where settings or a request allow it."""
    yield from stage.cluster()
    yield from stage.create("red", (SECOND, THIRD, FIRST), **{UNCLEAN: "true"})
    for name in ("grey", "pink"):
        yield from stage.create(name, (SECOND, THIRD, FIRST), **{UNCLEAN: "true"})
        stage.set_config(name, **{UNCLEAN: "false"})
    yield from stage.leave_alone(SECOND, THIRD, FIRST)
    stage.count()
    stage.kill(SECOND)
    yield stage.leads(THIRD, "red")
    yield stage.leads(NO_LEADER, "grey")
    stage.set_config("grey", **{UNCLEAN: "true"})
    yield stage.leads(THIRD, "grey")
    yield stage.ask(lambda: ElectLeaders(ElectionType.UNCLEAN, (PINK,)))
    yield stage.leads(THIRD, "pink")
    stage.reconcile()
    stage.world.start_agent(SECOND)
    yield stage.is_well


def silence(stage: Stage) -> Script:
    """One of those that could lead does not say how far its log goes, until it is too late."""
    yield from stage.cluster()
    yield from stage.create("red", (SECOND, THIRD, FIRST), **{UNCLEAN: "true"})
    yield from stage.leave_alone(SECOND, THIRD, FIRST)
    stage.count()
    stage.world.network.link("h3", "h1").blocked = True
    stage.kill(SECOND)
    yield stage.leads(FIRST, "red")
    stage.world.network.link("h3", "h1").heal()
    stage.reconcile()
    stage.world.start_agent(SECOND)
    yield stage.is_well


def statelessness(stage: Stage) -> Script:
    """A topic has no states yet when a term begins, and a replica does not say in time whether it has logs of it."""
    yield from stage.cluster()
    links = [stage.world.network.link("h3", other) for other in ("h1", "h2")]
    stage.count()
    for link in links:
        link.blocked = True
    yield from stage.while_nobody_rules(partial(stage.write_topic, "tool", (FIRST, SECOND, THIRD)))
    yield (ANSWER_WITHIN_MS + ASK_AGAIN_MS) / 1000 + 1
    for link in links:
        link.heal()
    yield lambda: stage.in_sync("tool") != ()
    yield stage.is_well


def balance(stage: Stage) -> Script:
    """Leaders are given back to where they are preferred, by nobody's wish."""
    yield from stage.cluster()
    yield from stage.create("blue", (SECOND, FIRST), (SECOND, THIRD))
    stage.count()
    yield stage.restart(SECOND)
    yield lambda: stage.in_sync("blue") == (FIRST, SECOND) and stage.in_sync("blue", 1) == (SECOND, THIRD)
    yield stage.leads(SECOND, "blue")
    yield stage.leads(SECOND, "blue", 1)
    yield stage.is_well


def directories(stage: Stage) -> Script:
    """A log directory fails, and the broker is restarted when that is repaired."""
    yield from stage.cluster()
    yield from stage.create("blue", (THIRD, SECOND), (THIRD, FIRST), (THIRD, SECOND), (THIRD, FIRST))
    stage.count()
    disk = stage.world.hosts[THIRD].disk
    disk.fail(below="/more-3")
    stage.set_config("blue", segment_bytes="400")
    yield lambda: not all(stage.leads(THIRD, "blue", number)() for number in range(4))
    yield 0.5
    disk.mend("/more-3")
    yield stage.restart(THIRD)
    yield stage.is_well


_SHAPE: Final = Shape("paused", 3, (), 0, 0.0, 0.0, 30.0, 0.0, 0, (), 1.0, 0, Storage(directories=2))

SCENES: Final[dict[str, tuple[Scene, Shape]]] = {
    scene.__name__: (scene, _SHAPE._replace(balance_s=1) if scene is balance else _SHAPE)
    for scene in (
        beginning,
        failures,
        terms,
        failovers,
        shutdowns,
        departure,
        growth,
        deletions,
        reassignments,
        removal,
        elections,
        unclean,
        silence,
        statelessness,
        balance,
        directories,
    )
}
"""By name."""
