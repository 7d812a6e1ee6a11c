"""However a log directory is written in the settings, it is one directory."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.mark.parametrize("name", ["data", "data/", "./data", "../{here}/data"])
def test_directories_may_be_written_in_any_way(disk, batch, monkeypatch, name):
    monkeypatch.chdir(disk.root)
    disk.dirs = [Path(name.format(here=disk.root.name))]
    log = disk.log()
    log.append_as_leader(batch(1, 2), 0, 0)
    log.set_high_watermark(2)
    disk.manager.checkpoint_high_watermarks({log.topic_partition: log.high_watermark})
    list(disk.manager.checkpoint_recovery_points())
    log = disk.reopen(clean=True)
    assert (log.log_end_offset, disk.manager.high_watermark_checkpoint(log.topic_partition)) == (2, 2)
    assert (disk.root / "data" / "replication-offset-checkpoint").read_text() == "0\n1\nflights 3 2\n"
    assert disk.failures == []
