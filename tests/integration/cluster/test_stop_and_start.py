"""A cluster that is stopped in order and started again reads as a stop and a start, and not as losses."""

from __future__ import annotations

import pytest

from regency.cluster.status import end_cluster
from regency.history.files import read_history

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("by", ["close", "down", "stop"])
def test_a_routine_stop_tells_of_no_losses(new_cluster, create_topic, by):
    cluster = new_cluster(brokers=3, own_zookeeper=True)
    create_topic(cluster, partitions=6, replication=3)
    epoch, ruler = cluster.controller_epoch(), cluster.controller_id()

    if by == "close":
        cluster.close(grace_s=15)
    elif by == "stop":
        assert cluster.stop("all")
    else:
        assert not any(each.killed for each in end_cluster(cluster.directory, grace_s=15))

    logs = {broker: cluster.log(broker).read_text() for broker in (1, 2, 3)}
    assert [broker for broker, log in logs.items() if "this is the last live broker" in log] == [ruler]
    assert not any("although leadership could not be moved away" in log for log in logs.values())
    told = read_history(cluster.history_dirs)
    assert {each.controller_epoch for each in told if each.to.startswith("broker ")} == {epoch}, "no other ruled"
    left = [each for each in told if each.from_.startswith("shutting down")]
    assert {each.subject for each in left} >= {f"broker {each}" for each in (1, 2, 3) if each != ruler}
    assert {each.why for each in left if each.subject != f"broker {ruler}"} == {"it left in order"}
    asked = {each.subject: each.why for each in told if each.to == "shutting down"}
    assert [subject for subject, why in asked.items() if "as the last broker that was live" in why] == [
        f"broker {ruler}"
    ]
