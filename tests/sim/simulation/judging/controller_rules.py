"""The rules of controllers: whom agents obey, and who believes to rule. Looked at after steps of their processes."""

from __future__ import annotations

from typing import Any

from regency.broker_agent.metadata import MetadataSnapshot
from regency.controller.controller import View
from regency.model.ids import BrokerId
from regency.model.kafka_errors import ErrorCode
from regency.protos import control_pb2 as pb
from simulation.cluster.agent import SimAgent
from simulation.cluster.controller import SimController
from simulation.judging.invariants import broken
from simulation.judging.zookeeper_rules import ZookeeperRules


class Obedience:
    """What an agent process has obeyed so far. Raises InvariantBroken."""

    __slots__ = ("_agent", "_epoch", "_metadata", "_zookeeper")

    def __init__(self, agent: SimAgent, zookeeper: ZookeeperRules) -> None:
        self._agent = agent
        self._zookeeper = zookeeper
        self._epoch = 0
        self._metadata: MetadataSnapshot | None = None
        agent.on_control = self.answered

    def answered(self, request: Any, answer: pb.ControlResponse) -> None:
        """The agent has answered a control request; the answer names the controller epoch it obeys."""
        epoch = request.header.controller_epoch
        if epoch < answer.controller_epoch and answer.error_code == ErrorCode.NONE:
            raise broken(
                "deposed-refused",
                f"broker {self._agent.broker_id} did what {request.header.controller_id} asked in controller epoch "
                f"{epoch}, although it obeys {answer.controller_epoch}",
            )

    def look(self) -> None:
        """A step of the agent's process is over."""
        service = self._agent.service
        if service is None:
            return
        gate = service._gate
        if gate.controller_epoch != self._epoch:
            self._check_obeyed(gate.controller_epoch, gate._controller)
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
        controller = self._controller.controller
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
        self._epoch = view.epoch
