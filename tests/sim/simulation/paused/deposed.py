"""The judge of a controller that was paused and has been deposed: nothing it does takes effect any more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from regency.broker_agent.control.service import ControlService
from regency.controller.controller import Controller
from regency.model.kafka_errors import ErrorCode
from regency.protos import control_pb2 as pb
from regency.runtime.zookeeper.session import Create, Op
from simulation.cluster.controller import SimController
from simulation.defects.patching import Patch
from simulation.judging.invariants import broken
from simulation.judging.judges import Judges
from simulation.kernel.scheduler import Process
from simulation.world import World
from simulation.zookeeper.model import Session
from simulation.zookeeper.transactions import OK, Result, Txn, TxnKind

_CHANGING: Final = ("leader_and_isr", "update_metadata", "stop_replica", "shut_down")
"""What agents do for controllers, but telling."""

Serve = Callable[[ControlService, Any], pb.ControlResponse]
Multi = Callable[[Session, Sequence[Op]], tuple[int, list[Result]]]


class Deposed:
    """Looks at one process from `begin` on. Raises InvariantBroken out of the scheduler's `run_until`.

    Made after the judges of the world, so that it hears of a transaction when they have taken it in.
    """

    def __init__(self, world: World, judges: Judges, patch: Patch) -> None:
        self.process: Process | None = None
        self._world = world
        self._zookeeper = judges._zookeeper
        self._sim: SimController | None = None
        self._sessions: set[int] = set()
        self._resumed = False
        world.zookeeper.on_commit(self._committed)
        patch.set(world.zookeeper.model, "multi", self._attempted(world.zookeeper.model.multi))
        for name in _CHANGING:
            patch.set(ControlService, name, self._watched(getattr(ControlService, name)))

    def begin(self, process: Process) -> None:
        self.process = process
        self._sim = next(each for each in self._world.controllers.values() if each.process is process)
        self._look_at_session()

    def resumed(self) -> None:
        """It goes on: agents that obey somebody else by now do nothing for it."""
        self._resumed = True

    @property
    def in_session(self) -> bool:
        """Whether the session lives in which it was paused."""
        return any(each in self._world.zookeeper.model.sessions.live for each in self._sessions)

    @property
    def session_ends_us(self) -> int:
        """When the session ends that it was paused in, if nothing is heard of it any more; 0 where it has ended."""
        live = self._world.zookeeper.model.sessions.live
        ends = [live[each].deadline_ms * 1000 for each in sorted(self._sessions) if each in live]
        return min(ends, default=0)

    def is_replaced(self) -> bool:
        """Whether somebody else holds the office, in ZooKeeper."""
        holder = self._holder
        return holder is not None and holder not in self._sessions

    def is_forgotten(self) -> bool:
        """Whether somebody else rules who has nothing left to do, and all that live and are registered obey him."""
        host = self._world.ruler()
        sim = None if host is None else host.controller
        if not self.is_replaced() or sim is None or sim.controller is None or sim.process is self.process:
            return False
        controller, epoch = sim.controller, self._zookeeper.controller_epoch
        if not controller.view.ruling or controller.view.epoch != epoch or self._busy(sim, controller):
            return False
        agents = [agent for agent in self._world.agents.values() if agent.broker_id in self._zookeeper.brokers]
        services = [agent.service for agent in agents if agent.process.alive and not agent.leaving]
        return all(service is not None and service._gate.controller_epoch == epoch for service in services)

    @staticmethod
    def _busy(sim: SimController, controller: Controller) -> bool:
        return bool(controller.unacknowledged) or (sim._queue is not None and len(sim._queue) > 0)

    @property
    def _holder(self) -> int | None:
        """The session that won the epoch that rules."""
        return self._zookeeper.winning_sessions.get(self._zookeeper.controller_epoch)

    def _look_at_session(self) -> None:
        session = None if self._sim is None else self._sim.session
        if session is not None and session.session_id:
            self._sessions.add(session.session_id)

    def _is_deposed(self, session_id: int) -> bool:
        if self.process is None:
            return False
        self._look_at_session()
        return session_id in self._sessions and self._holder is not None and session_id != self._holder

    # What it does

    def _committed(self, txn: Txn) -> None:
        if txn.kind is TxnKind.WRITE and txn.writes and self._is_deposed(txn.session_id):
            written = ", ".join(f"{write.kind} {write.path}" for write in txn.writes)
            raise broken("controller-fenced", f"{self._name} was deposed and still did {written}")

    def _attempted(self, multi: Multi) -> Multi:
        """Also what fails for another reason must not get past the check of the epoch: it might succeed elsewhere."""

        def watched(session: Session, ops: Sequence[Op]) -> tuple[int, list[Result]]:
            zxid, results = multi(session, ops)
            failed = any(result.error != OK for result in results)
            if failed and results[0].error == OK and not isinstance(ops[0], Create) and self._is_deposed(session.id):
                raise broken(
                    "controller-fenced", f"{self._name} was deposed, and {ops} failed only beyond its first operation"
                )
            return zxid, results

        return watched

    def _watched(self, serve: Serve) -> Serve:
        def watched(service: ControlService, request: Any) -> pb.ControlResponse:
            answer = serve(service, request)
            epoch = request.header.controller_epoch
            if self._resumed and answer.error_code == ErrorCode.NONE and self._is_of_old(epoch):
                words = f"an agent did what {self._name} asked in controller epoch {epoch}: {type(request).__name__}"
                raise broken("deposed-refused", words)
            return answer

        return watched

    def _is_of_old(self, epoch: int) -> bool:
        won_by = self._zookeeper.winning_sessions.get(epoch)
        return won_by in self._sessions and won_by != self._holder

    @property
    def _name(self) -> str:
        return "nobody" if self.process is None else self.process.name
