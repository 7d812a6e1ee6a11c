"""The rules of controllers: whom agents obey, and who believes to rule. Looked at after steps of their processes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from regency.broker_agent.control.metadata_cache import MetadataSnapshot
from regency.controller.controller import View
from regency.controller.state.context import ControllerContext
from regency.model.ids import NO_BROKER_EPOCH, NO_LEADER, BrokerId, TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.protos import control_pb2 as pb
from regency.protos.controller_pb2 import ControlledShutdownResponse
from simulation.cluster.agent import SimAgent
from simulation.cluster.controller import SimController
from simulation.judging.facts import Facts
from simulation.judging.invariants import broken
from simulation.judging.zookeeper_rules import ZookeeperRules


class Obedience:
    """What an agent process has obeyed so far. Raises InvariantBroken."""

    __slots__ = ("_agent", "_asked", "_earlier", "_epoch", "_incarnation", "_last", "_metadata", "_zookeeper")

    def __init__(self, agent: SimAgent, zookeeper: ZookeeperRules) -> None:
        self._agent = agent
        self._zookeeper = zookeeper
        self._epoch = 0
        self._earlier = zookeeper.last_epoch(agent.broker_id)
        self._incarnation = self._earlier
        self._last = (0, NO_BROKER_EPOCH, -1)
        self._metadata: MetadataSnapshot | None = None
        self._asked: dict[tuple[bytes, int], tuple[int, int, int]] = {}
        """Controller epoch, leader epoch and version of what it was asked last, by topic id and partition."""
        agent.on_control = self.answered
        agent.on_left = self.left

    def left(self, moved: bool, told: ControlledShutdownResponse | None) -> None:
        """The agent is about to stop, and takes all that it led for moved away, or not."""
        may_go = told is not None and told.error_code == ErrorCode.NONE and not told.remaining_partitions
        if moved and not may_go:
            raise broken(
                "left-as-told", f"broker {self._agent.broker_id} leaves as one that leads nothing, told {told}"
            )

    def answered(self, request: Any, answer: pb.ControlResponse) -> None:
        """The agent has answered a control request; the answer names the controller epoch it obeys."""
        header = request.header
        if answer.error_code != ErrorCode.NONE:
            self._check_stale(header, answer)
            return
        did = f"broker {self._agent.broker_id} did what {header.controller_id} asked"
        if header.controller_epoch < answer.controller_epoch:
            raise broken(
                "deposed-refused",
                f"{did} in controller epoch {header.controller_epoch}, although it obeys {answer.controller_epoch}",
            )
        if isinstance(request, pb.LeaderAndIsrRequest | pb.StopReplicaRequest):
            self._check_older(request, answer)
        if isinstance(request, pb.LeaderAndIsrRequest):
            self._check_newest(request)
        if header.broker_epoch == NO_BROKER_EPOCH:
            return
        if header.broker_epoch <= self._earlier or header.broker_epoch < self._incarnation:
            raise broken(
                "incarnation-refused",
                f"{did} of incarnation {header.broker_epoch}; processes before it were {self._earlier} at most, and it "
                f"was asked as {self._incarnation}",
            )
        self._incarnation = header.broker_epoch
        if isinstance(request, pb.LeaderAndIsrRequest):
            self._check_placed(header, answer)

    def _check_placed(self, header: pb.Header, answer: pb.ControlResponse) -> None:
        """Whether it refused to make a log that can be nowhere yet, although it has a directory for it."""
        agent = self._agent
        if agent.logs is None or len(agent.logs.offline_dirs) >= len(agent.settings.log_dirs):
            return
        for topic in answer.topics:
            for number, error in zip(topic.partition, topic.error_code, strict=True):
                partition = TopicPartition(topic.topic, number)
                if error != ErrorCode.KAFKA_STORAGE_ERROR or agent.logs.get(partition) is not None:
                    continue
                if agent.replicas is not None and partition in agent.replicas.partitions:
                    continue  # it was made, and then its directory failed
                state = self._zookeeper.state(partition)
                if state is None or state.version or state.controller_epoch != header.controller_epoch:
                    continue
                is_new = agent.broker_id in state.isr  # others are not told so: they were not live when it was made
                if is_new and self._zookeeper.decided_at(partition) > header.broker_epoch:
                    raise broken("new-partitions-placed", f"broker {agent.broker_id} has no place for {partition}")

    def _check_stale(self, header: pb.Header, answer: pb.ControlResponse) -> None:
        """Whether who was refused is in office no more, or spoke to an incarnation that is over."""
        refused = f"broker {self._agent.broker_id} refuses what {header.controller_id} asked"
        zookeeper, epoch = self._zookeeper, header.controller_epoch
        in_office = zookeeper.is_ruled and epoch == zookeeper.controller_epoch
        if (
            answer.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
            and in_office
            and header.controller_id == zookeeper.winners[epoch]
        ):
            raise broken("refused-is-older", f"{refused} in controller epoch {epoch}, in which it rules")
        registered, owner = zookeeper.brokers.get(self._agent.broker_id, (NO_BROKER_EPOCH, 0))
        session = self._agent.session
        holds = session is not None and session.session_id == owner  # else it has lost it, perhaps before it knew of it
        if (
            answer.error_code == ErrorCode.STALE_BROKER_EPOCH
            and header.broker_epoch == registered > self._earlier
            and holds
        ):
            raise broken("refused-is-older", f"{refused} of incarnation {registered}, as which it is registered")

    def _check_older(self, request: pb.LeaderAndIsrRequest | pb.StopReplicaRequest, answer: pb.ControlResponse) -> None:
        """Whether what it fenced is older than what it holds."""
        fenced = {
            TopicPartition(topic.topic, number): held
            for topic in answer.topics
            for number, error, held in zip(topic.partition, topic.error_code, topic.leader_epoch, strict=True)
            if error == ErrorCode.FENCED_LEADER_EPOCH
        }
        for told in request.topics if fenced else ():
            for number, asked in zip(told.partition, told.leader_epoch, strict=True):
                held = fenced.get(TopicPartition(told.topic, number), asked + 1)
                if asked >= held:
                    raise broken(
                        "refused-is-older",
                        f"broker {self._agent.broker_id} fences leader epoch {asked} of {told.topic}-{number}, where "
                        f"it holds {held}",
                    )

    def _check_newest(self, request: pb.LeaderAndIsrRequest) -> None:
        """Whether it was asked for what is older than what the same controller has asked for before."""
        by = request.header.controller_epoch
        for told in request.topics:
            for number, epoch, version in zip(told.partition, told.leader_epoch, told.zk_version, strict=True):
                key, asked = (told.topic_id, number), (by, epoch, version)
                before = self._asked.get(key, asked)
                if before[0] == by and asked < before:
                    raise broken(
                        "newest-is-asked",
                        f"broker {self._agent.broker_id} is asked for leader epoch {epoch}, version {version} of "
                        f"{told.topic}-{number} after {before[1]}, {before[2]}",
                    )
                self._asked[key] = asked

    def look(self) -> None:
        """A step of the agent's process is over."""
        service = self._agent.service
        if service is None:
            return
        gate = service._gate
        if gate.controller_epoch != self._epoch:
            self._check_obeyed(gate.controller_epoch, gate._controller)
        last = self._last
        if gate._seq != last[2] or gate._broker_epoch != last[1] or gate.controller_epoch != last[0]:
            last = gate.controller_epoch, gate._broker_epoch, gate._seq
            if last[:2] == self._last[:2] and last < self._last:
                raise broken(
                    "requests-in-order",
                    f"broker {self._agent.broker_id} executes request {last[2]} of controller epoch {last[0]} after "
                    f"{self._last[2]}",
                )
            self._last = last
        view = self._agent.metadata._view
        if view is not self._metadata:
            before, self._metadata = self._metadata, view
            if before is not None and view.controller_epoch < before.controller_epoch:
                raise broken(
                    "metadata-holds",
                    f"broker {self._agent.broker_id}: from {before.controller_epoch} to {view.controller_epoch}",
                )

    def _check_obeyed(self, epoch: int, controller: BrokerId) -> None:
        who = f"broker {self._agent.broker_id}"
        if epoch < self._epoch:
            raise broken("deposed-refused", f"{who} obeys controller epoch {epoch} after {self._epoch}")
        winner = self._zookeeper.winners.get(epoch)
        if winner != controller:
            raise broken("obeyed-won", f"{who} obeys {controller} in controller epoch {epoch}, which {winner} has won")
        self._epoch = epoch


class Rule:
    """When a controller process has ruled so far. Raises InvariantBroken."""

    __slots__ = ("_broker", "_controller", "_epoch", "_view", "_zookeeper")

    def __init__(self, broker: BrokerId, controller: SimController, zookeeper: ZookeeperRules) -> None:
        self._broker = broker
        self._controller = controller
        self._zookeeper = zookeeper
        self._epoch = 0
        self._view: View | None = None

    def look(self) -> None:
        """A step of the controller's process is over."""
        if self._controller.leaves:
            self._check_leaves()
        controller = self._controller.controller
        if self._controller.unanswered:
            self._check_answered()
        if controller is None or controller.view is self._view:
            return
        view = self._view = controller.view
        if not view.ruling:
            return
        winner = self._zookeeper.winners.get(view.epoch)
        if winner != self._broker or view.epoch < self._epoch:
            raise broken(
                "rules-what-it-won",
                f"broker {self._broker} rules in controller epoch {view.epoch}, which {winner} has won, "
                f"after it ruled in {self._epoch}",
            )
        if view.epoch != self._epoch:
            self._check_session(view.epoch)
            if view.epoch == self._zookeeper.controller_epoch:
                self._check_known(view)
        self._epoch = view.epoch

    def _check_leaves(self) -> None:
        leaves, self._controller.leaves = self._controller.leaves, []
        for broker, asked_as, known_as in leaves:
            if asked_as != known_as:
                raise broken(
                    "leavers-asked",
                    f"broker {self._broker} takes {broker} for shutting down, which it knows as {known_as}: {asked_as} "
                    "asked for that",
                )

    def _check_answered(self) -> None:
        """Whether somebody who asked it in a term that is over goes on waiting although there is nothing left to do.

        A term ends within an event, and what waits in the queue is preempted within a step: an idle controller is about
        to answer nobody.
        """
        sim = self._controller
        view = View() if sim.controller is None else sim.controller.view
        left = [event.cause for event, epoch in sim.unanswered.items() if not view.ruling or view.epoch != epoch]
        if left and sim.idle:
            raise broken("callers-answered", f"controller {self._broker} has never answered {', '.join(left)}")

    def _check_session(self, epoch: int) -> None:
        controller, session = self._controller.controller, self._controller.session
        term = None if controller is None else controller._term
        if session is None or term is None or session.generation != term.store.fence.generation:
            return  # it is lost already
        won_by = self._zookeeper.winning_sessions.get(epoch, 0)
        if session.session_id not in (0, won_by):
            raise broken(
                "rules-what-it-won",
                f"broker {self._broker} rules in controller epoch {epoch} by session {session.session_id:x}; "
                f"{won_by:x} has won it",
            )

    def _check_known(self, view: View) -> None:
        """A term has just begun: all it knows was read after it was won."""
        for broker, epoch in view.brokers.items():
            lowest = self._zookeeper.at_win.get(broker, NO_BROKER_EPOCH)
            if epoch < lowest:
                raise broken(
                    "term-begins-anew",
                    f"broker {self._broker}, which has won controller epoch {view.epoch}, takes {epoch} for the broker "
                    f"epoch of {broker}, which had gone by then; {lowest} is the lowest it may have",
                )


def check_decided(zookeeper: ZookeeperRules, controllers: Mapping[BrokerId, SimController], facts: Facts) -> None:
    """A controller's decision was committed just now, and it does not know yet. Raises InvariantBroken."""
    decided, zookeeper.decided = zookeeper.decided, []
    winner = zookeeper.winners.get(zookeeper.controller_epoch)
    sim = None if winner is None else controllers.get(winner)
    term = None if sim is None or sim.controller is None else sim.controller._term
    if term is None or term.epoch != zookeeper.controller_epoch:
        return
    for partition, before, after in decided:
        known = term.context.leadership(partition)
        if known is not None and known.leader_and_isr.zk_version != before.version:
            version = known.leader_and_isr.zk_version
            raise broken("decided-on-what-stands", f"{partition}: {after} was decided on version {version}: {before}")
        if after.leader not in (NO_LEADER, before.leader) and after.leader in term.context.shutting_down:
            raise broken("leavers-not-elected", f"{partition}: {after.leader}, which is shutting down, was elected")
        facts.leaving(partition, term.context.shutting_down)
        if after.leader not in (NO_LEADER, *before.isr):
            _check_longest(term.context, partition, after.leader, before.isr)


def _check_longest(
    context: ControllerContext, partition: TopicPartition, leader: BrokerId, isr: Collection[BrokerId]
) -> None:
    """A leader that was not in sync: nobody who lives has said that his log goes further; where a member of the ISR
    lives, that it goes on where the leader's ends.
    """
    inquiry = context.inquiries.get(partition)
    live = [each for each in context.assignment(partition).replicas if context.is_online(each, partition)]
    if inquiry is None or len(live) < 2:
        return
    known = {each: end for each in live if (end := inquiry.ends.get(each)) is not None}
    if not known:
        return
    leads = known.get(leader)
    longer = {each: end[:2] for each, end in known.items() if leads is None or end[:2] > leads[:2]}
    if leads is not None and not known.keys().isdisjoint(isr):
        longer = {each: end for each, end in longer.items() if known[each].extends(leads)}
    if longer:
        raise broken("longest-log-leads", f"{partition}: {leader} was elected; what live replicas said: {known}")
