"""When a controller process is alive and when it is ready, as /livez and /readyz tell it. Any thread."""

from __future__ import annotations

from collections.abc import Callable

from regency.controller.controller import Controller
from regency.controller.event_loop import EventLoop
from regency.controller.metrics.meters import EventMeter
from regency.runtime.http.probes import Condition

LONGEST_EVENT_MS = 300_000
"""An event that takes longer will never end. Not even a failover of millions of partitions does, and contact with
ZooKeeper is waited for only as long as a session lasts: who killed a slow failover would begin it again."""


def live_conditions(loop: EventLoop, events: EventMeter) -> list[Condition]:
    """What holds as long as a restart would not help; its event thread ends the process when it fails."""

    def event_thread() -> str:
        in_hand_ms = events.in_hand_ms()
        if in_hand_ms <= LONGEST_EVENT_MS:
            return ""
        return f"its event thread is busy with {loop.state.label} since {in_hand_ms // 1000} s"

    return [Condition("event_thread", event_thread)]


def ready_conditions(controller: Controller, session_id: Callable[[], int]) -> list[Condition]:
    """What must hold for this candidate to rule, or to rule next."""

    def session() -> str:
        return "" if session_id() else "there is no session with ZooKeeper"

    def elector() -> str:
        if controller.view.blocked:
            return controller.view.blocked
        return "" if controller.in_race else "its last look at /controller has not gone well, or there was none yet"

    return [Condition("session", session), Condition("elector", elector)]
