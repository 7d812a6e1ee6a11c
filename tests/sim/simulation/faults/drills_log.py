"""Drills of what only one log has: the tail of a leader that is deposed, on its disk and in its producers' books."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from regency.broker_agent.log.partition_log import PartitionLog
from regency.kafka.record_batch import BatchHeader, read_header
from regency.model import znodes
from regency.model.ids import BrokerId, TopicPartition
from regency.model.znodes import paths
from simulation.cluster.agent import PollAsked, ProduceAsked
from simulation.cluster.channels import CLIENTS, KAFKA
from simulation.faults.network_faults import Trouble, afflict
from simulation.faults.plan import SECOND_US, Fault, Kind
from simulation.faults.scripts import Led, Script, Scripts
from simulation.faults.stage import Deed, Stage
from simulation.kernel.scheduler import Process
from simulation.network import NetFailed

SEGMENTS = 4
"""Of a tail: the one that is cut is synced when the next begins, the last is always recovered, those between count."""

_SYNC_US = 2_000
"""Longest time of a sync while they are copied."""


def deeds(stage: Stage) -> dict[Kind, Deed]:
    """The faults of this file."""
    drills = _Drills(stage)
    return {Kind.DRILL_LOST_TAILS: drills.of(drills.lost_tails)}


class _Heard:
    """What a broker whose answers are lost is asked."""

    def __init__(self) -> None:
        self.unanswered: set[tuple[int, int, int]] = set()
        """Batches: producer id and epoch, and the first sequence number."""
        self.read_below = 0
        """Some consumer has read all below this offset."""


class _Drills(Scripts):
    def lost_tails(self, fault: Fault, undone: ExitStack) -> Script:
        """One after the other by turns."""
        order = (self.cut_and_crash, self.strangers, self.expired_meanwhile)
        script = order[(self._done - 1) % len(order)]
        self._stage.note("drill", "%s", script.__name__.replace("_", " "))
        yield from script(fault, undone)

    # What was synced, and cut off

    def cut_and_crash(self, fault: Fault, undone: ExitStack) -> Script:
        """A leader has a tail of some segments that nobody copies, when it stops in order, and another leads.

        When it is back it cuts its tail off, and copies as far as that went; and then it loses power.
        """
        yield lambda: bool(self._full())
        led = fault.chance().choice(self._full())
        partition, old = led.partition, led.state.leader
        deaf = undone.enter_context(ExitStack())
        for follower in led.followers:
            deaf.enter_context(self._apart(follower, old))
            deaf.enter_context(self._apart(old, follower))
        agreed = max(self._end(follower, partition) for follower in led.followers)
        yield lambda: self._segments_behind(old, partition, agreed) > SEGMENTS
        host = self._world.hosts[old]
        down = undone.enter_context(ExitStack())
        down.callback(self._stage.keep_down(host))
        gone: list[int] = []
        end = self._end(old, partition)
        self._world.stop_agent(old, lambda: gone.append(old))
        yield lambda: bool(gone)
        deaf.close()
        new = led.followers
        yield lambda: any(
            self._leads(each, partition) and self._segments_behind(each, partition, agreed, up_to=end) >= SEGMENTS
            for each in new
        )

        def copied() -> bool:
            held = self._held(old, partition)
            is_beyond = held is not None and held.log.last_batch_epoch > led.state.leader_epoch
            return is_beyond and self._end(old, partition) >= end

        died = self._dies_when(old, "log.background_flush.before_data", copied)
        undone.callback(  # what it copies is there before it is synced
            self._stage.lasts(("slow", old), _SYNC_US, lambda values: host.disk.slow(max(values, default=0)))
        )
        down.close()
        yield died
        yield 0.5

    def _segments_behind(
        self, broker: BrokerId, partition: TopicPartition, offset: int, *, up_to: float = float("inf")
    ) -> int:
        """How many segments begin behind an offset."""
        held = self._held(broker, partition)
        bases = () if held is None else held.log.segment_base_offsets
        return sum(offset < base <= up_to for base in bases)

    def _dies_when(self, broker: BrokerId, point: str, condition: Callable[[], bool]) -> Callable[[], bool]:
        """Let a machine lose power when its agent is next at a point and something is so; whether it has."""
        done: list[bool] = []
        host = self._world.hosts[broker]

        def arm() -> None:
            self._stage.points.arm([f"agent-{broker}"], [point], struck)

        def struck(process: Process) -> None:
            del process
            if condition():
                done.append(True)
                self._stage.die(host, lossy=True, wholly=False)
                self._stage.later(SECOND_US // 4, self._stage.keep_down(host))
            else:
                arm()

        arm()
        return lambda: bool(done)

    # What a producer takes for written

    def strangers(self, fault: Fault, undone: ExitStack) -> Script:
        """A new producer's first batches go to a leader that is deposed and has not answered yet, the next to another.

        It asks who leads while it waits for the answers, as clients do now and then.
        """
        kept = self._world.shape.topics[0].name  # where nothing has expired yet, what is missing is missed
        yield lambda: bool(self._full_of(kept))
        led = fault.chance().choice(self._full_of(kept))
        partition, old = led.partition, led.state.leader
        deaf = undone.enter_context(ExitStack())
        for follower in led.followers:
            deaf.enter_context(self._apart(follower, old))
        # Fetches that are under way bring something yet.
        yield lambda: self._end(old, partition) > max(self._end(each, partition) for each in led.followers)
        for _ in range(len(self._world.shape.producers) + self._world.shape.consumers):
            self._stage.told.kill_client(0.0)  # the oldest; another begins in its place
        yield lambda: bool(
            self._producers(old, partition).difference(*(self._producers(each, partition) for each in led.followers))
        )
        silent = ExitStack()
        way = [(self._world.hosts[old].name, CLIENTS)]
        silent.callback(afflict(self._stage, way, Trouble(blocked=True)))
        undone.enter_context(silent)
        self._expire(old)
        yield lambda: any(self._leads(each, partition) for each in led.followers)
        deaf.close()
        yield lambda: not self._believes(old, partition)
        yield 0.05
        silent.close()  # what it has answered is lost; and it can be asked who leads
        self._stage.told.look_again()
        yield 4.0  # in which producers give it up

    def expired_meanwhile(self, fault: Fault, undone: ExitStack) -> Script:
        """What a producer has no answer for expires before a follower that lacks it is back, which then leads.

        The follower begins anew where its leader's log does; and the producer sends again.
        """
        topic = self._world.shape.topics[-1].name
        yield lambda: bool(self._full_of(topic))
        led = fault.chance().choice(self._full_of(topic))
        partition, old = led.partition, led.state.leader
        ruler = self._ruler()
        other, new = sorted(led.followers, key=lambda each: each != ruler)  # who rules takes note of it at once
        down = undone.enter_context(self._end_agent(new))
        yield lambda: new not in self._isr(partition)
        begun = self._end(old, partition)
        silent = undone.enter_context(ExitStack())
        heard = self._answers_lost(old, partition, silent)

        def last_of_a_silent_one() -> int:
            """The last offset of a producer that sends it again and again, and nothing else; in an older segment."""
            held = self._held(old, partition)
            if held is None:
                return -1
            log: PartitionLog = held.log
            lasts = {
                each.batches[-1].last_offset
                for id_, each in log._producers._producers.items()
                if (id_, each.epoch, each.batches[-1].first_sequence) in heard.unanswered
            }
            return max((last for last in lasts if last < log.segment_base_offsets[-1]), default=-1)

        yield lambda: last_of_a_silent_one() >= 0
        expired = last_of_a_silent_one()
        yield lambda: self._high_watermark(old, partition) > expired
        self._stage.told.seek(partition, begun)
        yield lambda: heard.read_below > expired  # what nobody has read is missed by nobody
        kept = undone.enter_context(ExitStack())
        kept.callback(self._set_retention, topic, "-1")
        self._set_retention(topic, "1")
        yield lambda: self._start(old, partition) > expired
        kept.close()
        down.close()
        yield lambda: new in self._isr(partition)
        self._expire(old, other)
        yield lambda: self._leads(new, partition)
        silent.close()
        yield 2.0  # in which producers hear of it

    def _answers_lost(self, broker: BrokerId, partition: TopicPartition, until: ExitStack) -> _Heard:
        """What a broker answers idempotent producers breaks the connection; others, and consumers, are answered."""
        network, to = self._world.network, f"{self._world.hosts[broker].name}:{KAFKA}"
        heard = _Heard()

        def numbered(request: object) -> BatchHeader | None:
            if not isinstance(request, ProduceAsked) or partition not in request.batches:
                return None
            header = read_header(request.batches[partition])
            return header if header.producer_id >= 0 else None

        def hear(caller: Process, source: str, address: str, request: object) -> bool:
            del caller, source
            if address == to and (header := numbered(request)) is not None:
                heard.unanswered.add((header.producer_id, header.producer_epoch, header.base_sequence))
            if address == to and isinstance(request, PollAsked):
                at = [row.fetch_offset for row in request.partitions if row.topic_partition == partition]
                heard.read_below = max(heard.read_below, *at, 0)
            return False

        def forge(address: str, request: object, answer: object) -> object:
            return NetFailed("the connection was reset") if address == to and numbered(request) else answer

        network.tap, network.forge = hear, forge
        until.callback(setattr, network, "tap", None)
        until.callback(setattr, network, "forge", None)
        return heard

    def _start(self, broker: BrokerId, partition: TopicPartition) -> int:
        held = self._held(broker, partition)
        return -1 if held is None else held.log.log_start_offset

    def _set_retention(self, topic: str, retention_bytes: str) -> None:
        """As an administrator does; all brokers are notified."""
        zookeeper, path = self._world.zookeeper, paths.topic_config(topic)
        before = zookeeper.read(path)
        config = {} if before is None else znodes.decode_config(path, before.data)
        config["retention.bytes"] = retention_bytes
        data = znodes.encode_config(config, previous=None if before is None else before.data)
        if zookeeper.write_as_admin(path, data):
            change = znodes.encode_config_change(f"topics/{topic}")
            zookeeper.write_as_admin(paths.config_change_prefix(), change, new=True)

    def _believes(self, broker: BrokerId, partition: TopicPartition) -> bool:
        """Whether a broker takes itself for the leader."""
        held = self._held(broker, partition)
        return held is not None and held.is_leader

    def _full_of(self, topic: str) -> list[Led]:
        return [led for led in self._full() if led.partition.topic == topic]

    def _producers(self, broker: BrokerId, partition: TopicPartition) -> set[int]:
        """The ids of the producers that a log has batches of."""
        held = self._held(broker, partition)
        log: PartitionLog | None = None if held is None else held.log
        return set() if log is None else set(log._producers._producers)
