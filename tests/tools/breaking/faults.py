"""Random faults for a cluster of processes: planned from a seed, then done and mended one after the other.

Every fault keeps what a broker wrote, but for WIPE, which takes one broker's disk while every other replica is in sync.
"""

from __future__ import annotations

import random
import shutil
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING

import msgspec

from regency.cluster.errors import ClusterNotRunning
from regency.cluster.process import processes
from regency.model.errors import RegencyError
from regency.model.ids import BrokerId
from regency.model.znodes import paths as znode_paths
from regency.runtime.zookeeper.session import Delete

if TYPE_CHECKING:
    from breaking.tcp_proxy import TcpProxy
    from regency.cluster.cluster import Cluster
    from regency.cluster.zookeeper import EmbeddedZooKeeper

STOP_TIMEOUT_S = 20.0
"""In which a broker leaves in order, whatever else is broken."""

HEAL_TIMEOUT_S = 30.0
"""In which a cluster is whole again after its last fault was mended."""


class FaultKind(Enum):
    """What is done to the cluster."""

    KILL = "kill -9"
    WIPE = "kill -9 and lose the disk of"
    STOP = "SIGTERM"
    PAUSE = "pause"
    PAUSE_AGENT = "pause the agent alone of"
    PAUSE_CONTROLLER = "pause the controller alone of"
    KILL_CONTROLLER = "kill -9 the ruling controller alone"
    DELETE_CONTROLLER = "delete /controller"
    PAUSE_ZOOKEEPER = "pause ZooKeeper"
    RESTART_ZOOKEEPER = "restart ZooKeeper"
    KILL_ZOOKEEPER = "kill -9 ZooKeeper"
    CUT_ZOOKEEPER = "let nothing pass to or from ZooKeeper"
    HOLD_REPLIES = "let requests pass to ZooKeeper and hold its replies"
    RESET_ZOOKEEPER = "reset every connection to ZooKeeper, again and again"


_PAUSES = (FaultKind.PAUSE, FaultKind.PAUSE_AGENT, FaultKind.PAUSE_CONTROLLER)
_OF_BROKERS = (FaultKind.KILL, FaultKind.STOP, *_PAUSES)
_OF_THE_WIRE = (FaultKind.CUT_ZOOKEEPER, FaultKind.HOLD_REPLIES, FaultKind.RESET_ZOOKEEPER)
_OF_THE_SERVER = (FaultKind.PAUSE_ZOOKEEPER, FaultKind.RESTART_ZOOKEEPER, FaultKind.KILL_ZOOKEEPER)
_OF_ZOOKEEPER = (*_OF_THE_SERVER, *_OF_THE_WIRE)
_OF_THE_CONTROLLER = (FaultKind.KILL_CONTROLLER, FaultKind.DELETE_CONTROLLER)
_RESET_EVERY_S = 0.15
_SESSION_S = 3.0


class Fault(msgspec.Struct, frozen=True):
    """One fault. `hold_s` passes before it is mended.

    `broker` is a broker id, or None: for the one that rules then, and for every wire.
    """

    kind: FaultKind
    broker: int | None = None
    hold_s: float = 0.0

    def __str__(self) -> str:
        if self.kind in _OF_THE_WIRE:
            whom = "" if self.broker is None else f", for broker {self.broker} alone,"
        elif self.kind in (*_OF_ZOOKEEPER, *_OF_THE_CONTROLLER):
            whom = ""
        else:
            whom = f" {'the ruler' if self.broker is None else self.broker}"
        held = f" for {self.hold_s:.1f} s" if self.hold_s else ""
        return f"{self.kind.value}{whom}{held}"


class Round(msgspec.Struct, frozen=True):
    """Faults that hold at the same time, `gap_s` after one another; then a pause, or (`heal`) until all is whole."""

    faults: tuple[Fault, ...]
    gap_s: float
    heal: bool
    rest_s: float

    def __str__(self) -> str:
        then = "until whole" if self.heal else f"{self.rest_s:.1f} s rest"
        return f"{' + '.join(str(fault) for fault in self.faults)} ({self.gap_s:.1f} s apart); {then}"


def plan_rounds(seed: int, rounds: int, brokers: Sequence[int]) -> list[Round]:
    """The rounds of a seed; the same for the same arguments. The last one is followed by nothing."""
    dice = random.Random(seed)
    planned = []
    for _ in range(rounds):
        faults = [_fault(dice, brokers)]
        if faults[0].kind is not FaultKind.WIPE and dice.random() < 0.4:
            second = _fault(dice, brokers)
            if _may_meet(faults[0], second):
                faults.append(second)
        faults.sort(key=lambda fault: fault.kind in _OF_ZOOKEEPER)
        planned.append(Round(tuple(faults), dice.choice((0.0, 0.3, 1.0)), dice.random() < 0.5, dice.uniform(0.0, 1.5)))
    return planned


def _fault(dice: random.Random, brokers: Sequence[int]) -> Fault:
    kinds = [*_OF_BROKERS * 2, *_OF_ZOOKEEPER, *_OF_THE_CONTROLLER, FaultKind.WIPE]
    kind = dice.choice(kinds)
    broker = dice.choice([None, *brokers])
    if kind in _OF_THE_CONTROLLER:
        return Fault(kind)
    if kind in _OF_THE_WIRE:
        return Fault(kind, broker, dice.choice((0.3, 1.0, _SESSION_S + 1.5)))
    if kind in _OF_ZOOKEEPER:
        return Fault(kind, hold_s=dice.choice((0.0, 1.0, _SESSION_S + 1.5)))
    if kind in _PAUSES:
        return Fault(kind, broker, dice.choice((0.3, 1.5, 2.8, _SESSION_S + 1.0, _SESSION_S + 3.0)))
    return Fault(kind, broker, dice.choice((0.0, 0.5, 2.0, _SESSION_S + 1.0)))


def _may_meet(first: Fault, second: Fault) -> bool:
    if FaultKind.WIPE in (first.kind, second.kind):
        return False
    if first.kind in _OF_THE_SERVER and second.kind in _OF_THE_SERVER:
        return False
    return first.broker != second.broker or second.kind not in _OF_BROKERS


class Breaker:
    """Does what was planned to one cluster, its ZooKeeper and the brokers' wires to it. `tell` hears of each step."""

    def __init__(
        self, cluster: Cluster, zookeeper: EmbeddedZooKeeper, wires: Mapping[int, TcpProxy], tell: Callable[[str], None]
    ) -> None:
        self._cluster = cluster
        self._zookeeper = zookeeper
        self._wires = wires
        self._tell = tell
        self._never = threading.Event()
        self.troubles: list[str] = []
        """What a fault brought to light by itself: a broker that did not leave in order."""

    def run(self, rounds: Sequence[Round]) -> None:
        """All rounds; the cluster may still be recovering afterwards. Raises ClusterError."""
        for each in rounds:
            self._round(each)
            if each.heal:
                self._cluster.wait_healthy(HEAL_TIMEOUT_S)
                self._tell("whole again")
            else:
                self._never.wait(each.rest_s)

    def _round(self, each: Round) -> None:
        if any(fault.kind is FaultKind.WIPE for fault in each.faults):
            self._cluster.wait_healthy(HEAL_TIMEOUT_S)
        mends: list[tuple[bool, float, Callable[[], None]]] = []
        for number, fault in enumerate(each.faults):
            if number:
                self._never.wait(each.gap_s)
            self._tell(str(fault))
            due_s = time.monotonic() + fault.hold_s
            mends.append((fault.kind not in _OF_ZOOKEEPER, due_s, self._break(fault)))
        for _, due_s, mend in sorted(mends, key=lambda entry: entry[:2]):  # no broker starts without ZooKeeper
            self._never.wait(max(0.0, due_s - time.monotonic()))
            mend()

    def _break(self, fault: Fault) -> Callable[[], None]:
        if fault.kind is FaultKind.KILL_CONTROLLER:
            return self._kill_controller()
        if fault.kind is FaultKind.DELETE_CONTROLLER:
            return self._delete_controller()
        if fault.kind in _OF_ZOOKEEPER:
            return self._break_zookeeper(fault)
        return self._break_broker(fault.kind, self._whom(fault.broker))

    def _break_zookeeper(self, fault: Fault) -> Callable[[], None]:
        zookeeper = self._zookeeper
        if fault.kind in _OF_THE_WIRE:
            return self._break_wire(fault)
        if fault.kind is FaultKind.PAUSE_ZOOKEEPER:
            zookeeper.pause()
            return lambda: self._mend("resume ZooKeeper", zookeeper.resume)
        if fault.kind is FaultKind.KILL_ZOOKEEPER:
            zookeeper.kill()
        else:
            zookeeper.stop()
        return lambda: self._mend("start ZooKeeper", zookeeper.start)

    def _break_wire(self, fault: Fault) -> Callable[[], None]:
        wires = list(self._wires.values()) if fault.broker is None else [self._wires[fault.broker]]
        if fault.kind is FaultKind.RESET_ZOOKEEPER:
            for _ in range(1 + round(fault.hold_s / _RESET_EVERY_S)):
                for wire in wires:
                    wire.reset_all()
                self._never.wait(_RESET_EVERY_S)
            return _nothing
        for wire in wires:
            if fault.kind is FaultKind.CUT_ZOOKEEPER:
                wire.black_hole()
            else:
                wire.half_open()
        return lambda: self._heal(wires)

    def _heal(self, wires: Sequence[TcpProxy]) -> None:
        self._tell("heal the wire")
        for wire in wires:
            wire.heal()

    def _break_broker(self, kind: FaultKind, broker: BrokerId) -> Callable[[], None]:
        cluster = self._cluster
        if kind is FaultKind.PAUSE:
            cluster.pause(broker)
        elif kind in _PAUSES:
            self._pause_one(kind, broker)
        if kind in _PAUSES:
            return lambda: self._mend(f"resume {broker}", lambda: cluster.resume(broker))
        if kind is FaultKind.STOP:
            began_s = time.monotonic()
            if not cluster.stop(broker, timeout_s=STOP_TIMEOUT_S):
                self.troubles.append(f"broker {broker} did not end within {STOP_TIMEOUT_S:.0f} s of SIGTERM")
            self._tell(f"broker {broker} ended after {time.monotonic() - began_s:.2f} s")
        else:
            cluster.kill(broker)
        if kind is FaultKind.WIPE:
            for directory in cluster.log_dirs(broker):
                shutil.rmtree(directory)
        return lambda: self._mend(f"start {broker}", lambda: cluster.start(broker))

    def _pause_one(self, kind: FaultKind, broker: BrokerId) -> None:
        try:
            child = self._cluster.controller_process(broker)
        except ClusterNotRunning as error:
            self._tell(str(error))
            return
        row = child if kind is FaultKind.PAUSE_CONTROLLER else processes.process(self._cluster.pid(broker))
        if row is not None:
            processes.send_one(row, signal.SIGSTOP)

    def _mend(self, words: str, repair: Callable[[], None]) -> None:
        self._tell(words)
        repair()

    def _kill_controller(self) -> Callable[[], None]:
        try:
            self._cluster.kill_controller()
        except RegencyError as error:
            self._tell(f"nobody rules: {error}")
        return _nothing

    def _delete_controller(self) -> Callable[[], None]:
        try:
            self._cluster.session().multi([Delete(znode_paths.CONTROLLER, None)])
        except RegencyError as error:
            self._tell(f"ZooKeeper does not answer: {error}")
        return _nothing

    def _whom(self, broker: int | None) -> BrokerId:
        if broker is not None:
            return BrokerId(broker)
        try:
            ruler = self._cluster.controller_id()
        except RegencyError:
            ruler = None
        return ruler if ruler is not None else self._cluster.broker_ids[0]


def _nothing() -> None:
    return None
