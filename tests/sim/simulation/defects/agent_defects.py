"""Defects of the agent, by subject."""

from __future__ import annotations

from simulation.defects import follower_defects, leader_defects, log_defects
from simulation.defects.patching import Defect

DEFECTS: tuple[Defect, ...] = (*leader_defects.DEFECTS, *follower_defects.DEFECTS, *log_defects.DEFECTS)
