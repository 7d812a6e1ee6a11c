"""The known holes of Kafka's controller and brokers, and which defect plants each, or why none can.

tests/ledger/controller.txt and tests/ledger/replication.txt have the same ones, with the tests that show them. What
is called `no ticket` was never reported, or is a limit that was never lifted.
"""

from __future__ import annotations

from typing import Final

from simulation.defects import controller_holes, replication_holes
from simulation.defects.hole import Hole

HOLES: Final[tuple[Hole, ...]] = (*controller_holes.HOLES, *replication_holes.HOLES)

ELSEWHERE: Final = frozenset(
    {"KAFKA-13140", "KIP-33", "KIP-98", "KIP-106", "KIP-107", "KIP-112", "KIP-405", "KIP-497", "KIP-516"}
)
"""What sources of defects name and these rows do not."""
