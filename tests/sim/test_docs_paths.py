"""What docs/internals/map.md says of the files that something crosses is what a simulated cluster enters."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from crossed_files import Stage, as_listed, crossed, listed
from scripted_clusters import ScriptedCluster

pytestmark = pytest.mark.sim

FAILURE = (
    Stage("the watch", ("Controller._watch.<locals>.<lambda>",), {"event": "BrokersChanged"}),
    Stage("the event", ("Controller.process",), {"event": "BrokersChanged"}),
    Stage("the senders", ("_Channel._run",)),
    Stage("the agent's control server", ("ControlService.leader_and_isr",)),
    Stage("the agent's data loop", ("ReplicaManager.apply_states",)),
)
NOT_IN_SIMULATION = (
    *(
        f"regency/runtime/zookeeper/{name}.py"
        for name in ("io", "tcp", "link", "core", "records", "watches", "dispatcher")
    ),
    "regency/runtime/grpc/servers.py",
    "broker_agent/process/data_loop.py",
    "regency/runtime/disk.py",
)


def test_the_files_that_the_failure_of_a_broker_crosses() -> None:
    with ExitStack() as stack:
        cluster = ScriptedCluster(stack, 1, (1, 2, 3))
        cluster.until_all_is_well()
        leader = cluster.state.leader
        with crossed(FAILURE) as way:
            cluster.world.kill_agent(leader, wholly=True)
            cluster.until(lambda: cluster.state.leader not in (leader, -1))
            cluster.pass_s(1)
        assert all(way.entered.values())
        assert listed("A broker's failure") == as_listed(way, NOT_IN_SIMULATION)
