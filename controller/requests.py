"""Requests of other tools below /admin, and notifications of failed directories, that this release does not handle yet.

They are left untouched, so that a release that does finds them.
"""

from __future__ import annotations

import logging

from regency.controller.term import Term

logger = logging.getLogger(__name__)


def report_pending_requests(term: Term) -> None:
    """Log every request that stands in ZooKeeper, once per term."""
    for path in term.store.pending_requests():
        if term.report_once(path):
            logger.warning("%s is not handled yet: it is left as it is", path)
