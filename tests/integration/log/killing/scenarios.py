"""What brokers do: together the scenarios pass every crash point of the log."""

from __future__ import annotations

from collections.abc import Callable

from killing.batches import make_batch
from killing.broker import Broker
from regency.model.ids import TopicPartition

FLIGHTS = TopicPartition("flights", 3)
TRAINS = TopicPartition("trains", 0)


def leading(broker: Broker) -> None:
    """A leader's life: appends, rolls, flushes, epochs, retention, deletion, clean restarts."""
    broker.create(FLIGHTS)
    broker.create(TRAINS, "b")
    broker.lead(FLIGHTS, 1)
    broker.produce(FLIGHTS, 1, 9)
    broker.commit(FLIGHTS, 8)
    broker.minute()
    broker.log(FLIGHTS).flush_in_background()
    broker.worker.work_off()
    broker.lead(FLIGHTS, 2)
    broker.produce(FLIGHTS, 2, 8)
    broker.produce(TRAINS, 0, 3)
    broker.expire(FLIGHTS, 1200)
    broker.minute()
    broker.raise_start(FLIGHTS, 25)
    broker.minute()
    broker.stop()
    broker.start()
    broker.produce(FLIGHTS, 2, 3)
    broker.delete(TRAINS)
    broker.create(TRAINS, "b")
    broker.produce(TRAINS, 1, 1)
    broker.minute()
    broker.stray(TRAINS)
    broker.stop()


def following(broker: Broker) -> None:
    """A follower's life: many batches at once, cuts of every kind, a log that begins elsewhere."""
    broker.create(FLIGHTS)
    broker.copy(FLIGHTS, 0, 14)
    broker.commit(FLIGHTS, 4)
    broker.minute()
    broker.copy(FLIGHTS, 1, 6)
    broker.cut(FLIGHTS, 36)
    broker.settle(FLIGHTS)
    broker.copy(FLIGHTS, 2, 3)
    broker.log(FLIGHTS).flush()
    broker.cut(FLIGHTS, 17)
    broker.copy(FLIGHTS, 3, 9)
    broker.raise_start(FLIGHTS, 7)
    broker.minute()
    broker.cut(FLIGHTS, 7)
    broker.copy(FLIGHTS, 4, 9)
    broker.raise_start(FLIGHTS, 20)
    broker.minute()
    broker.cut(FLIGHTS, 3)
    broker.copy(FLIGHTS, 5, 5)
    broker.start_over(FLIGHTS, 40)
    broker.settle(FLIGHTS)
    broker.copy(FLIGHTS, 6, 9)
    broker.stop()
    broker.start()
    broker.copy(FLIGHTS, 6, 2)
    broker.minute()


def recovering(broker: Broker) -> None:
    broker.create(FLIGHTS)
    broker.copy(FLIGHTS, 0, 8, 1)
    broker.minute()
    broker.tear(FLIGHTS, b"\0" * 300)
    broker.start()
    broker.copy(FLIGHTS, 1, 3, 1)
    broker.tear(FLIGHTS, make_batch(1, broker.log(FLIGHTS).log_end_offset, 1, 9, 0, 1)[:77])
    broker.start()
    broker.log(FLIGHTS).flush()
    broker.minute()
    broker.worker.is_slow = True
    for _ in range(3):
        broker.log(FLIGHTS).roll()
        broker.copy(FLIGHTS, 2, 1, 1)
    broker.lose_page(FLIGHTS)
    broker.start()
    broker.copy(FLIGHTS, 3, 3, 1)


def moving(broker: Broker) -> None:
    """A replica moves to the other directory and back; one move is given up."""
    broker.create(FLIGHTS, "a")
    broker.produce(FLIGHTS, 1, 9)
    broker.raise_start(FLIGHTS, 3)
    broker.minute()
    broker.begin_move(FLIGHTS, "b")
    broker.copy_moved(FLIGHTS, 3)
    broker.minute()
    broker.produce(FLIGHTS, 1, 2)
    broker.copy_moved(FLIGHTS)
    broker.finish_move(FLIGHTS)
    broker.produce(FLIGHTS, 1, 2)
    broker.minute()
    broker.begin_move(FLIGHTS, "a")
    broker.copy_moved(FLIGHTS, 4)
    broker.delete(FLIGHTS)
    broker.minute()
    broker.create(FLIGHTS, "b")
    broker.produce(FLIGHTS, 2, 3)
    broker.begin_move(FLIGHTS, "a")
    broker.copy_moved(FLIGHTS)
    broker.stop()
    broker.start()
    broker.finish_move(FLIGHTS)
    broker.produce(FLIGHTS, 2, 3)


def writing(broker: Broker) -> None:
    """Some records are synced, and as many follow, in this segment and another, that are not."""
    broker.create(FLIGHTS)
    broker.copy(FLIGHTS, 0, 6)
    broker.log(FLIGHTS).flush()
    broker.commit(FLIGHTS)
    broker.minute()
    broker.worker.is_slow = True
    broker.copy(FLIGHTS, 0, 1)
    broker.copy(FLIGHTS, 1, 3)


def compacting(broker: Broker) -> None:
    """A log is compacted again and again: to the end, broken off by cuts, by a crash, by a stop in order."""
    broker.create(FLIGHTS)
    broker.lead(FLIGHTS, 1)
    broker.produce_keyed(FLIGHTS, 1, *["a b c", "a b d", "a -d e", "b f"] * 5)
    broker.compact(FLIGHTS)
    broker.minute()
    broker.produce_keyed(FLIGHTS, 1, *["a b c", "g", "a h"] * 7)
    broker.compact(FLIGHTS)
    broker.lead(FLIGHTS, 2)
    broker.produce_keyed(FLIGHTS, 2, *["a b c", "d e f"] * 6)
    for jobs in (0, 1, 2):
        broker.compact(FLIGHTS, jobs, cut=broker.log(FLIGHTS).log_end_offset - 14)
        broker.settle(FLIGHTS)
        broker.lead(FLIGHTS, 3 + jobs)
        broker.produce_keyed(FLIGHTS, 3 + jobs, *["a i b", "b c d", "e f"] * 7)
    for jobs in (0, 1, 2):
        broker.compact(FLIGHTS, jobs)
        broker.lose_power()
        broker.start()
        broker.produce_keyed(FLIGHTS, 5, *["a b c", "d e f", "-a"] * 5)
    broker.minute()
    broker.compact(FLIGHTS, 1)
    broker.stop()
    broker.start()
    broker.produce_keyed(FLIGHTS, 5, *["a b c"] * 8)
    broker.compact(FLIGHTS)
    broker.minute()
    broker.stop()


SCENARIOS: dict[str, Callable[[Broker], None]] = {
    each.__name__: each for each in (leading, following, recovering, moving, writing, compacting)
}
