"""Data loops that stand still while the rest of their agents goes on, and the watchdog that ends those that hang."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

import pytest
from scripted_clusters import ScriptedCluster
from simulation.defects import planted
from simulation.judging.invariants import InvariantBroken
from simulation.kernel.scheduler import Process

from regency.model.ids import BrokerId

pytestmark = pytest.mark.sim

REPLICAS = (BrokerId(1), BrokerId(2), BrokerId(3))


@pytest.fixture
def cluster() -> Iterator[ScriptedCluster]:
    with ExitStack() as stack:
        made = ScriptedCluster(stack, 1, REPLICAS)
        made.until_all_is_well()
        yield made


def hang_the_leader(cluster: ScriptedCluster) -> Process:
    """Have the data loop of the leader of blue-0 stand still from now on."""
    agent = cluster.world.agents[cluster.state.leader]
    cluster.world.stand_still(agent)
    return agent.process


def test_a_loop_that_stands_for_less_than_the_limit_goes_on_where_it_was(cluster: ScriptedCluster) -> None:
    leader, epoch = cluster.state.leader, cluster.state.leader_epoch
    process = hang_the_leader(cluster)
    done: list[int] = []
    for number in range(3):
        cluster.world.agents[leader].post(partial(done.append, number))
    cluster.pass_s(3)
    assert not done, "it stands"
    process.go_on()
    cluster.pass_s(1)
    assert done == [0, 1, 2]
    assert (cluster.state.leader, cluster.state.leader_epoch) == (leader, epoch)
    cluster.until_all_is_well()


def test_who_leads_with_a_loop_that_hangs_ends_and_is_replaced(cluster: ScriptedCluster) -> None:
    leader = cluster.state.leader
    process = hang_the_leader(cluster)
    cluster.pass_s(4)
    assert process.alive, "its session and its other threads are well"
    assert cluster.state.leader == leader
    cluster.pass_s(12)
    assert not process.alive
    assert cluster.state.leader != leader
    cluster.until_all_is_well()


def test_a_pause_of_the_whole_process_is_not_taken_for_a_loop_that_hangs(cluster: ScriptedCluster) -> None:
    process = hang_the_leader(cluster)
    cluster.pass_s(1)
    process.pause()
    cluster.pass_s(60)
    assert process.alive
    process.resume()
    process.go_on()
    cluster.until_all_is_well()
    assert process.alive


def test_a_leader_that_no_watchdog_ends_is_found() -> None:
    with ExitStack() as stack:
        stack.enter_context(planted("hung-loops-live-on"))
        cluster = ScriptedCluster(stack, 1, REPLICAS)
        cluster.until_all_is_well()
        hang_the_leader(cluster)
        with pytest.raises(InvariantBroken, match="leaders-serve: blue-0"):
            cluster.pass_s(20)
