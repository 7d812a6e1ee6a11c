"""Members that restart while their leader writes the ISR: nobody may lead later by what an earlier process had."""

from __future__ import annotations

from contextlib import ExitStack

from scripted_clusters import STATE, ScriptedCluster
from simulation.defects import planted

from regency.model.ids import BrokerId
from regency.model.znodes import paths as znode_paths
from regency.runtime.zookeeper.session import SetData

LEADER, OTHER, JOINER = BrokerId(1), BrokerId(2), BrokerId(3)
SEEDS = (2, 3)
MORE_SEEDS = (7, 11, *range(12, 31))
"""Few schedules lose something by a hidden restart; whatever changes schedules may move them beyond the first two."""
UNCHECKED = "isr-members-unchecked"


class Script(ScriptedCluster):
    """A cluster of three that leads blue-0 on broker 1, clients that write to it, and what befalls them in order."""

    def __init__(self, stack: ExitStack, seed: int, replicas: tuple[BrokerId, ...]) -> None:
        super().__init__(stack, seed, replicas)
        self.ruled = True
        self.pass_s(1)
        self.workload.start()
        self.pass_s(3)
        assert (self.isr, self.state.leader) == (replicas, LEADER)

    @property
    def isr(self) -> tuple[BrokerId, ...]:
        return self.state.isr

    def registration(self, broker: BrokerId) -> int:
        held = self.world.zookeeper.read(znode_paths.broker(broker))
        return 0 if held is None else held.stat.czxid

    def separate(self, *, apart: bool) -> None:
        """The joiner does not reach the leader, or does again."""
        for ways in ("h1", "h3"), ("h3", "h1"):
            self.world.network.link(*ways).blocked = apart

    def hold_isr_changes(self) -> list[bool]:
        """What the leader sends to change the ISR is on its way until the link is made well again; whether any is."""
        session = self.world.agents[LEADER].session
        link = self.world.zk_links["agent-1"]
        send = session.multi_pipelined
        held: list[bool] = []

        def late(multis, *, generation):
            if any(isinstance(op, SetData) for ops in multis for op in ops):
                held.append(True)
                link.suffer(there=True, back=False, extra_us=0)
            return send(multis, generation=generation)

        session.multi_pipelined = late
        return held

    def let_through(self) -> None:
        """What is on its way to ZooKeeper arrives."""
        self.world.zk_links["agent-1"].heal()

    def lose_power(self, broker: BrokerId) -> None:
        """A broker's machine loses what was not synced, and is up again at once."""
        before = self.registration(broker)
        self.judges.facts.lossy_crash(broker)
        self.world.kill_agent(broker, lossy=True)
        self.world.start_agent(broker)
        if not self.ruled:
            self.world.hosts[broker].controller_process.pause()
        self.until(lambda: self.registration(broker) > before)

    def let_nobody_rule(self) -> None:
        self.ruled = False
        for host in self.world.hosts.values():
            host.controller_process.pause()

    def let_somebody_rule(self) -> None:
        """Controllers begin again, and one has taken over."""
        for broker, host in self.world.hosts.items():
            if host.controller_process.alive:
                self.world.kill_controller(broker)
        before = self.world.agents[LEADER].metadata.ruling.epoch
        self.until(lambda: any(self.told_by(broker) > before for broker in (LEADER, JOINER)))

    def told_by(self, broker: BrokerId) -> int:
        """The epoch of the controller that a broker obeys; -1 for none."""
        ruling = self.world.agents[broker].metadata.ruling
        return -1 if ruling is None else ruling.epoch

    def lost(self) -> int:
        """Records of batches that were acknowledged and are not in the log of whoever leads, once all is well again."""
        self.pass_s(6)
        self.separate(apart=False)
        self.world.heal()
        self.workload.stop()
        self.until_all_is_well()
        return self.missing()


def lost_by_a_stale_join(seed: int, defect: str = "") -> int:
    """The joiner loses power and is back while the change that adds it is on its way; then the leader dies."""
    with ExitStack() as stack:
        stack.enter_context(planted(defect))
        script = Script(stack, seed, (LEADER, JOINER))
        script.separate(apart=True)
        script.until(lambda: script.isr == (LEADER,))
        held = script.hold_isr_changes()
        script.separate(apart=False)
        script.until(lambda: bool(held))
        script.pass_s(0.5)  # in which both have what is written
        script.separate(apart=True)
        script.lose_power(JOINER)
        before = script.world.zookeeper.read(STATE).stat.version
        script.let_through()
        script.pass_s(0.25)
        landed = script.world.zookeeper.read(STATE).stat.version > before
        assert landed == bool(defect)
        script.world.kill_agent(LEADER)
        return script.lost()


def lost_by_a_hidden_restart(seed: int, defect: str = "") -> int:
    """A member loses power while nobody rules, the leader drops another; somebody rules again, and the leader dies."""
    with ExitStack() as stack:
        stack.enter_context(planted(defect))
        script = Script(stack, seed, (LEADER, OTHER, JOINER))
        if defect:  # what comes of it shall be seen
            script.judges._zookeeper._check_isr_change = lambda *_: None
        script.world.kill_agent(OTHER)
        script.let_nobody_rule()
        script.pass_s(3)
        script.separate(apart=True)
        script.lose_power(JOINER)
        script.pass_s(3.2)
        assert script.isr == ((LEADER, JOINER) if defect else (LEADER, OTHER, JOINER))
        script.let_somebody_rule()
        script.world.kill_agent(LEADER)
        return script.lost()


def test_a_join_that_is_overtaken_by_a_restart_does_not_land() -> None:
    assert [lost_by_a_stale_join(seed) for seed in SEEDS] == [0] * len(SEEDS)


def test_without_the_check_of_who_joins_records_would_be_lost() -> None:
    assert any(lost_by_a_stale_join(seed, UNCHECKED) for seed in SEEDS)


def test_a_leader_does_not_hide_a_restart_from_the_next_controller() -> None:
    assert [lost_by_a_hidden_restart(seed) for seed in MORE_SEEDS[:2]] == [0, 0]


def test_without_the_check_of_who_stays_records_would_be_lost() -> None:
    assert any(lost_by_a_hidden_restart(seed, UNCHECKED) for seed in MORE_SEEDS)
