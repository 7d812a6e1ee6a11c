"""Warnings of planning and of tasks are heard: the processes that Spark starts have no logging configured."""

from __future__ import annotations

import logging

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def speak_up() -> None:
    """Have Regency's warnings written to stderr, which Spark shows on the driver and keeps in an executor's log.

    Does nothing where there is a listener already: a handler of the user, or that of Spark's own worker logging.
    """
    regency = logging.getLogger("regency")
    listening = (*regency.handlers, *logging.getLogger().handlers)
    if all(isinstance(handler, logging.NullHandler) for handler in listening):
        handler = logging.StreamHandler()
        handler.setLevel(logging.WARNING)
        handler.setFormatter(logging.Formatter(_FORMAT))
        regency.addHandler(handler)
