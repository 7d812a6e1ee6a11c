"""Defects of compaction: of what is cleaned, of what stays, and of how that takes its place."""

from __future__ import annotations

from regency.broker_agent.log.cleaning import keeping
from regency.broker_agent.log.log_core import LogCore
from regency.broker_agent.log.partition_log import PartitionLog
from regency.broker_agent.log.recovery import _Opening
from simulation.defects.patching import Defect, Defects, Patch

_ALL = Defects()


@_ALL.of("own rule")
def cleaned_above_the_watermark(patch: Patch) -> None:
    """records that are synced and not committed yet are compacted, too"""
    patch.edit(PartitionLog, "dirty_part", ("min(self._high_watermark, self.recovery_point)", "self.recovery_point"))


@_ALL.of("KIP-534")
def deletions_forgotten(patch: Patch) -> None:
    """a deletion is dropped by the first cleaning, whenever its delete.retention.ms ends"""
    patch.edit(keeping, "_records_that_stay", ("(horizons >= 0) & (horizons <= round_.now_ms)", "horizons >= -1"))


@_ALL.of("own rule")
def last_of_producer_dropped(patch: Patch) -> None:
    """the last batch of a producer goes where its records do"""
    patch.edit(keeping, "_fate", ("stays_empty |= header.last_offset == last.last_data_offset", "pass"))


@_ALL.of("own rule")
def swap_taken_back(patch: Patch) -> None:
    """a start removes cleaned segments that were about to take their place, though what they replace may be gone"""
    patch.edit(_Opening, "_finish_swaps", ("if not swapped:", "if True:"))


@_ALL.of("own rule")
def cut_stays_clean(patch: Patch) -> None:
    """a log that is cut off below where it is clean counts what comes there next as clean"""
    patch.edit(LogCore, "_cut", ("if self.cleaned_to is not None and self.cleaned_to > cut.end:", "if False:"))


DEFECTS: tuple[Defect, ...] = tuple(_ALL)
