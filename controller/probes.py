"""When a controller process is alive and when it is ready, as /livez and /readyz tell it. Any thread."""

from __future__ import annotations

from regency.controller.controller import Controller
from regency.model.ids import NO_LEADER
from regency.runtime.http.probes import Condition


def live_conditions() -> list[Condition]:
    """None: its event thread ends the process when it fails, and one that waits for ZooKeeper gains nothing by a new
    start.
    """
    return []


def ready_conditions(controller: Controller) -> list[Condition]:
    """What must hold for this candidate to rule, or to rule next."""

    def session() -> str:
        return "" if controller.in_contact else "there is no contact with ZooKeeper"

    def elector() -> str:
        view = controller.view
        return "" if view.ruling or view.incumbent != NO_LEADER else "it has not found out yet who rules"

    return [Condition("session", session), Condition("elector", elector)]
