"""Brokers with real logs replicate, change leaders and keep what they acknowledged."""

from __future__ import annotations

from regency.model.kafka_errors import ErrorCode


def test_followers_copy_the_leader_and_learn_its_high_watermark_with_the_next_fetch(cluster) -> None:
    cluster.lead(1)
    produced = cluster[1].produce("a", "b")
    assert produced == []
    cluster.run()
    assert [result.error for result in produced] == [ErrorCode.NONE]
    assert cluster[2].values() == cluster[3].values() == ["a", "b"]
    assert cluster[1].log().high_watermark == 2
    assert cluster[2].log().high_watermark == 0
    cluster.advance(600)
    assert [cluster[number].log().high_watermark for number in (1, 2, 3)] == [2, 2, 2]
