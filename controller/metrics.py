"""What a controller tells of itself at a scrape: read from its view, on the thread that serves the scrape."""

from __future__ import annotations

from collections.abc import Iterable

from regency.controller.controller import Controller
from regency.runtime.metrics import table_controller as names
from regency.runtime.metrics.families import Family, Wanted, value


class ControllerMetrics:
    """A source of metrics over one controller."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def collect(self, _: Wanted) -> Iterable[Family]:
        """Everything at this moment."""
        view = self._controller.view
        yield value(names.ACTIVE_CONTROLLER_COUNT, view.ruling)
