"""Defects of DeleteRecords, and of logs that have holes."""

from __future__ import annotations

from regency.broker_agent.log import recovery
from regency.broker_agent.log.partition_log import PartitionLog
from regency.broker_agent.replication.delete_records import DeletePath
from regency.broker_agent.replication.hosting import HostedPartitions
from regency.broker_agent.replication.partition import Partition
from simulation.defects.patching import Defects, Patch

DEFECTS = Defects()

# DeleteRecords


@DEFECTS.of("KIP-107")
def deletion_of_one(patch: Patch) -> None:
    """records count as deleted when the leader alone offers them no more"""
    patch.edit(DeletePath, "outcome", ("if low_watermark >= required else None", "if True else None"))
    patch.edit(
        DeletePath,
        "_low_watermark",
        ("low_watermark = partition.low_watermark()", "low_watermark = partition.log.log_start_offset"),
    )


@DEFECTS.of("own rule")
def low_watermark_of_before(patch: Patch) -> None:
    """what a replica's earlier incarnation told of its log start holds for the next one, and nobody is waited for"""
    patch.edit(
        Partition,
        "low_watermark",
        ("each.log_start_offset if each.broker_epoch == epoch else UNKNOWN_OFFSET", "max(each.log_start_offset, 0)"),
        ("min([self.log.log_start_offset, *starts])", "min([self.log.log_start_offset, *filter(None, starts)])"),
    )


@DEFECTS.of("own rule")
def deleters_not_told(patch: Patch) -> None:
    """who waits for a deletion does not hear that the partition is led elsewhere"""
    patch.edit(
        HostedPartitions, "changed", ("for purgatory in self.purgatories:", "for purgatory in self.purgatories[:2]:")
    )


# Holes


@DEFECTS.of("own rule")
def holes_refused(patch: Patch) -> None:
    """a follower takes nothing that does not begin right at its end"""
    patch.edit(PartitionLog, "append_as_follower", ("if base < self._log_end:", "if base != self._log_end:"))


@DEFECTS.of("own rule")
def holes_cut_off(patch: Patch) -> None:
    """recovery cuts a log off at a hole above its recovery point"""
    patch.edit(recovery._Opening, "_recover", (" and after is not None and header.next_offset > after", ""))
