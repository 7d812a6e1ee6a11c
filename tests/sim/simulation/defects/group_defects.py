"""Defects of the coordinator of groups, most of which Kafka's had."""

from __future__ import annotations

from regency.broker_agent.groups.loading import Load
from simulation.defects.patching import Defect, Defects, Patch

_ALL = Defects()


@_ALL.of("KAFKA-7286")
def loaded_in_part(patch: Patch) -> None:
    """loading ends after the first piece"""
    patch.edit(Load, "run", ("if offset >= read.log_end:", "if True:"))


BECAUSE: dict[str, str] = {}
"""Why the simulation does not find them."""

DEFECTS: tuple[Defect, ...] = tuple(defect for defect in _ALL if defect.name not in BECAUSE)

UNSEEN: tuple[Defect, ...] = tuple(defect for defect in _ALL if defect.name in BECAUSE)
"""Planted in vain."""
