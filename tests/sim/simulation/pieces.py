"""Small pieces: what production cuts at thousands of partitions is cut at one or two, so that it is simulated."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

from regency.broker_agent.control import service as control_service
from regency.broker_agent.registry import isr_store, topic_configs
from regency.broker_agent.replication import fetch, isr_maintenance
from regency.broker_agent.replication.fetcher import fetcher_logic
from regency.controller import term
from regency.controller.channel import request_batch, sender
from regency.controller.channel.metadata import MetadataLog
from regency.runtime.zookeeper import fenced
from simulation.defects.patching import Patch

OFTEN = 0.6
"""How many of the runs of the deep profile."""


@contextmanager
def cut(profile: str, seed: int) -> Iterator[None]:
    """Inside, limits may be small; always what they are in production under the quick profile."""
    chance = random.Random(f"pieces {seed}")
    patch = Patch()
    try:
        if profile == "deep":
            patch.set(topic_configs, "_TOLD_AT_ONCE", 1)
        if profile == "deep" and chance.random() < OFTEN:
            patch.set(request_batch, "PARTITIONS_PER_DELTA", chance.choice((1, 2)))
            patch.set(sender, "CHUNK_BYTES", chance.choice((1, 200)))
            patch.set(term, "MANY_WRITES", chance.choice((1, 1_000)))
            patch.set(fenced, "MAX_BATCH_OPS", chance.choice((1, 3, fenced.MAX_BATCH_OPS)))
            patch.set(control_service, "SLICE", chance.choice((1, 2)))
            patch.set(isr_store, "BATCH", chance.choice((1, 2)))
            patch.set(isr_store, "NOTIFY_PARTITIONS", chance.choice((1, 2)))
            patch.set(isr_maintenance, "_SLICE", chance.choice((1, 2)))
            patch.set(fetcher_logic, "_CUTS_AT_ONCE", 1)
            patch.set(fetch, "PARTITIONS_PER_STEP", 1)
            patch.set(MetadataLog.read, "__defaults__", (chance.choice((1, 400)),))
            patch.set(MetadataLog.__init__, "__kwdefaults__", {"retained_bytes": chance.choice((400, 2_000))})
        yield
    finally:
        patch.undo()
