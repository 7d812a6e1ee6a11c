"""What docs/internals/map.md says of the files that something crosses is what a simulated cluster enters."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from crossed_files import Stage, as_listed, crossed, listed
from scripted_clusters import BLUE, ScriptedCluster

pytestmark = pytest.mark.sim

FAILURE = (
    Stage("the watch", ("Controller._watch.<locals>.<lambda>",), {"event": "BrokersChanged"}),
    Stage("the event", ("Controller.process",), {"event": "BrokersChanged"}),
    Stage("the senders", ("_Channel._run",)),
    Stage("the agent's control server", ("ControlService.leader_and_isr",)),
    Stage("the agent's data loop", ("ReplicaManager.apply_states",)),
)
NOT_IN_SIMULATION = (
    *(f"regency/runtime/zookeeper/{name}.py" for name in ("io", "link", "core", "wire", "client")),
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


PRODUCE = (
    Stage("the leader appends", ("ReplicaManager.append",)),
    Stage("followers take it in and ask again", ("Fetcher.deliver", "Fetcher.wake")),
    Stage("the leader hears that they have it", ("FetchServer.fetch",)),
)
PRODUCE_NOT_IN_SIMULATION = (
    *(f"broker_agent/listener/{name}.py" for name in ("connection", "buffers", "turns", "exchange", "stats", "places")),
    *(f"broker_agent/listener/{name}.py" for name in ("server", "apis/produce", "apis/fetch")),
    "broker_agent/replication/fetcher/fetcher_thread.py",
    *(f"regency/kafka/{name}.py" for name in ("codec", "decoder", "peer", "fetching/wire")),
    "regency/runtime/disk.py",
)


def test_the_files_that_a_produce_crosses() -> None:
    with ExitStack() as stack:
        cluster = ScriptedCluster(stack, 1, (1, 2, 3))
        cluster.until_all_is_well()
        with crossed(PRODUCE) as way:
            cluster.workload.start()
            cluster.until(lambda: bool(cluster.judges.facts.of(BLUE).promised))
        assert all(way.entered.values())
        assert listed("A produce with acks=all") == as_listed(way, PRODUCE_NOT_IN_SIMULATION)
