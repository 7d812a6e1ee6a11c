"""What goes wrong between hosts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from regency.model.ids import BrokerId
from simulation.cluster.channels import CLIENTS, ControlAsked, host_of
from simulation.faults import zookeeper_faults
from simulation.faults.plan import SECOND_US, Fault, Kind
from simulation.faults.stage import Deed, Stage, Undo, together
from simulation.kernel.scheduler import Process
from simulation.network import Link, Network
from simulation.world import Host

Pairs = Sequence[tuple[str, str]]


class Trouble(NamedTuple):
    """What one fault does to a link."""

    blocked: bool = False
    extra_us: int = 0
    late: float = 1.0
    loss: float = 0.0


def deeds(stage: Stage) -> dict[Kind, Deed]:
    faults = _NetworkFaults(stage)
    return {
        Kind.ISOLATE: faults.isolate,
        Kind.ONE_WAY: faults.one_way,
        Kind.HALF_OPEN: faults.half_open,
        Kind.SPLIT: faults.split,
        Kind.SWIZZLE: faults.swizzle,
        Kind.LOSS: faults.loss,
        Kind.DELAY: faults.delay,
        Kind.LATE: faults.late,
        Kind.LOSE_ANSWERS: faults.lose_answers,
        Kind.RESET: faults.reset,
        Kind.FORGET: faults.forget,
    }


def afflict(stage: Stage, pairs: Pairs, trouble: Trouble) -> Undo:
    """Let links be in trouble, with whatever else troubles them."""
    undos = []
    for pair in pairs:
        link = stage.world.network.link(*pair)
        undos.append(stage.lasts(("link", pair), trouble, partial(_apply, link)))
    return together(undos)


def lose_first(network: Network, host: Host, rpc: type[Any]) -> None:
    """The first such control request to a host gets lost."""
    lost: list[Any] = []

    def tap(caller: Process, source: str, address: str, request: Any) -> bool:
        del caller, source
        if lost or not isinstance(request, ControlAsked) or request.rpc is not rpc:
            return False
        if not address.startswith(f"{host.name}:"):
            return False
        lost.append(request)
        return True

    network.tap = tap


def isolate(stage: Stage, host: str, others: Sequence[str]) -> Undo:
    """Let nothing pass between a host and others."""
    return afflict(stage, _both_ways(host, others), Trouble(blocked=True))


def _apply(link: Link, troubles: Sequence[Trouble]) -> None:
    link.heal()
    for trouble in troubles:
        link.blocked = link.blocked or trouble.blocked
        link.loss = 1 - (1 - link.loss) * (1 - trouble.loss)
        if trouble.extra_us > link.extra_us:
            link.extra_us, link.late = trouble.extra_us, trouble.late


def _both_ways(host: str, others: Sequence[str]) -> list[tuple[str, str]]:
    return [(host, other) for other in others] + [(other, host) for other in others]


class _NetworkFaults:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def _hosts(self, *, but: str = "") -> list[str]:
        names = [*(host.name for host in self._stage.world.hosts.values()), CLIENTS]
        return [name for name in names if name != but]

    def _block(self, pairs: Pairs) -> Undo:
        return afflict(self._stage, pairs, Trouble(blocked=True))

    def isolate(self, fault: Fault, host: Host) -> Undo:
        """From the other brokers; by chance also from clients and ZooKeeper."""
        others = [name for name in self._hosts(but=host.name) if name != CLIENTS or fault.detail < 0.5]
        undo = self._block(_both_ways(host.name, others))
        if fault.detail % 0.5 < 0.25:
            return undo
        names = [f"agent-{host.broker}", f"controller-{host.broker}"]
        return together([undo, zookeeper_faults.afflict(self._stage, names, zookeeper_faults.CUT)])

    def one_way(self, fault: Fault, host: Host) -> Undo:
        return self._block([(host.name, host_of(BrokerId(fault.other)))])

    def half_open(self, fault: Fault, host: Host) -> Undo:
        """What the host says is lost on connections that stand; in the end they turn out to be broken."""
        others = self._hosts(but=host.name) if fault.detail < 0.5 else [host_of(BrokerId(fault.other))]
        undo = self._block([(host.name, other) for other in others])

        def over() -> None:
            undo()
            for other in others:
                self._stage.world.network.reset(host.name, other)

        return over

    def split(self, fault: Fault, host: Host) -> Undo:
        """Two brokers do not hear each other; everybody else hears both."""
        return self._block(_both_ways(host.name, [host_of(BrokerId(fault.other))]))

    def swizzle(self, fault: Fault, host: Host) -> None:
        """Hosts are cut off one after another, and come back in another order."""
        del host
        stage, chance = self._stage, fault.chance()
        hosts = list(stage.world.hosts.values())
        chosen = chance.sample(hosts, chance.randint(2, len(hosts)))
        step = max(fault.for_us // (2 * len(chosen)), 1)
        undos: list[Undo] = []

        def cut(name: str) -> None:
            stage.note(name, "is cut off")
            undos.append(self._block(_both_ways(name, self._hosts(but=name))))

        def heal(index: int) -> None:
            undos[index]()

        for place, each in enumerate(chosen):
            stage.later(place * step, partial(cut, each.name))
        for place, index in enumerate(chance.sample(range(len(chosen)), len(chosen))):
            stage.later((len(chosen) + place) * step, partial(heal, index))

    def loss(self, fault: Fault, host: Host) -> Undo:
        """Some messages are lost, of one host or of all."""
        pairs = [(one, other) for one in self._hosts() for other in self._hosts(but=one)]
        chosen = [pair for pair in pairs if host.name in pair] if fault.detail < 0.7 else pairs
        return afflict(self._stage, chosen, Trouble(loss=0.02 + fault.detail * 0.4))

    def delay(self, fault: Fault, host: Host) -> Undo:
        other = host_of(BrokerId(fault.other)) if fault.detail < 0.6 else CLIENTS
        extra = int((0.05 + fault.detail * 5 % 1 * 6) * SECOND_US)
        return afflict(self._stage, _both_ways(host.name, [other]), Trouble(extra_us=extra))

    def late(self, fault: Fault, host: Host) -> Undo:
        """Some requests to the host arrive after their senders have given them up and sent them again."""
        others = self._hosts(but=host.name) if fault.detail < 0.6 else [CLIENTS]
        trouble = Trouble(extra_us=int((3 + fault.detail * 9) * SECOND_US), late=0.1 + fault.detail * 10 % 1 * 0.4)
        return afflict(self._stage, [(other, host.name) for other in others], trouble)

    def lose_answers(self, fault: Fault, host: Host) -> Undo:
        """What others ask this host arrives; nothing of what it says does."""
        others = self._hosts(but=host.name) if fault.detail < 0.5 else [host_of(BrokerId(fault.other))]
        return self._block([(host.name, other) for other in others])

    def reset(self, fault: Fault, host: Host) -> None:
        del fault
        for other in self._hosts(but=host.name):
            self._stage.world.network.reset(host.name, other)

    def forget(self, fault: Fault, host: Host) -> None:
        """A firewall or NAT forgets the connections of a pair, or of all brokers, without a word; new ones work."""
        names = self._hosts(but=CLIENTS)
        pairs = _both_ways(host.name, [host_of(BrokerId(fault.other))])
        if fault.detail < 0.4:
            pairs = [(one, other) for one in names for other in names]
        self._stage.note(host.name, "%d connections are forgotten", self._stage.world.network.forget(pairs))
