"""Defects of the controller."""

from __future__ import annotations

from simulation.defects.patching import Defect

DEFECTS: tuple[Defect, ...] = ()
