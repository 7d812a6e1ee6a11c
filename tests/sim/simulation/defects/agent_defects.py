"""Defects of the agent."""

from __future__ import annotations

from simulation.defects.patching import Defect

DEFECTS: tuple[Defect, ...] = ()
