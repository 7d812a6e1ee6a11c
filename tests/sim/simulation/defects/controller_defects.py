"""Defects of the controller, of its conversation with agents, and of what both write to ZooKeeper."""

from __future__ import annotations

from simulation.defects import (
    agent_control_defects,
    election_defects,
    message_defects,
    race_defects,
    write_defects,
)
from simulation.defects.patching import Defect

DEFECTS: tuple[Defect, ...] = (
    *race_defects.DEFECTS,
    *election_defects.DEFECTS,
    *message_defects.DEFECTS,
    *agent_control_defects.DEFECTS,
    *write_defects.DEFECTS,
)
