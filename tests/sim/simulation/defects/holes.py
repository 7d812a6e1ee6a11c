"""The holes of Kafka that the references describe in their sections 11, and which defect plants each, or why none can.

Rows are in the order of the references. What is named `controller 11.3 (n)` is the n-th line there, which has no issue.
"""

from __future__ import annotations

from typing import Final

from simulation.defects import controller_holes, replication_holes
from simulation.defects.hole import Hole

HOLES: Final[tuple[Hole, ...]] = (*controller_holes.HOLES, *replication_holes.HOLES)

ELSEWHERE: Final = frozenset({"KAFKA-13140", "KIP-33", "KIP-98", "KIP-106", "KIP-107", "KIP-112", "KIP-497"})
"""What sources of defects name and sections 11 do not."""
