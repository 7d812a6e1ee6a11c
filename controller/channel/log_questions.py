"""Asks one broker how far its logs go, on a thread of its own: a silent one delays no other.

Besides the conversation with the broker, in which every request has its turn: this one changes nothing. Belongs to one
controller epoch, as its header says.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from itertools import islice, repeat

import msgspec

from regency.controller.channel import messages
from regency.controller.channel.agents import GrpcAgent
from regency.controller.state.election import LogEnd
from regency.model.crash_points import crash_point
from regency.model.errors import RegencyError
from regency.model.facts import Broker
from regency.model.ids import BrokerEpoch, BrokerId, LeaderEpoch, Offset, TopicId, TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.protos import control_pb2 as pb

ANSWER_WITHIN_MS = 2_000
"""How long a broker may take to say how far its logs go: partitions without a leader wait for it."""

PARTITIONS_PER_REQUEST = 5_000
"""Keeps an answer below 2 MiB where a log knows of up to 40 leader epochs, and below what gRPC takes up to 1,000."""


NO_LOG = LogEnd(LeaderEpoch(-1), Offset(-1))
"""Of a replica that says it has no log."""


class LogEnds(msgspec.Struct, frozen=True):
    """What one incarnation of a broker answered; partitions it did not tell of are left out."""

    broker: BrokerId
    broker_epoch: BrokerEpoch
    asked: tuple[TopicPartition, ...]
    ends: Mapping[TopicPartition, LogEnd]


class LogQuestion:
    """One question to one broker. `tell` is called once, on a thread of this question, whatever comes of it."""

    def __init__(
        self,
        origin: messages.Origin,
        broker: Broker,
        partitions: Mapping[TopicPartition, TopicId],
        port: GrpcAgent,
        tell: Callable[[LogEnds], None],
    ) -> None:
        self._broker = broker
        self._header = messages.header(origin, broker.epoch, 0)
        self._partitions = partitions
        self._port = port
        self._tell = tell
        self.answered = False
        """It has told what it has to tell."""

    def start(self) -> None:
        """Ask."""
        name = f"question to broker {self._broker.id} (epoch {self._broker.epoch})"
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def close(self) -> None:
        """The answer is not wanted any more."""
        self._port.close()

    def _run(self) -> None:
        ends: dict[TopicPartition, LogEnd] = {}
        try:
            for request in self._requests():
                ends.update(log_ends(self._port.describe(request, ANSWER_WITHIN_MS)))
        except RegencyError:
            pass  # who does not answer is ranked last
        except Exception:  # noqa: BLE001, S110 (gRPC has many words for a channel closed meanwhile)
            pass
        finally:
            self._port.close()
        self.answered = True
        crash_point("controller.log_question.before_told")
        self._tell(LogEnds(self._broker.id, self._broker.epoch, tuple(self._partitions), ends))

    def _requests(self) -> Iterator[pb.DescribeReplicasRequest]:
        rest = iter(self._partitions.items())
        while piece := dict(islice(rest, PARTITIONS_PER_REQUEST)):
            yield pb.DescribeReplicasRequest(header=self._header, topics=messages.partition_refs(piece))


def log_ends(answer: pb.DescribeReplicasResponse) -> dict[TopicPartition, LogEnd]:
    """What an answer tells of logs. A log of another topic of that name is none of this one's."""
    ends: dict[TopicPartition, LogEnd] = {}
    if answer.error_code != ErrorCode.NONE:
        return ends
    without = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INCONSISTENT_TOPIC_ID)
    for topic in answer.topics:
        epochs = zip(topic.epoch, topic.epoch_start, strict=True)
        lengths = topic.epochs_len or repeat(0)  # an older agent tells of no epochs
        for (row, number), count in zip(enumerate(topic.partition), lengths, strict=False):
            known = tuple((LeaderEpoch(epoch), Offset(start)) for epoch, start in islice(epochs, count))
            code = topic.error_code[row]
            if code == ErrorCode.NONE:
                ends[TopicPartition(topic.topic, number)] = LogEnd(
                    LeaderEpoch(topic.last_batch_epoch[row]),
                    Offset(topic.log_end_offset[row]),
                    LeaderEpoch(topic.leader_epoch[row]),
                    Offset(topic.log_start_offset[row]),
                    known,
                    Offset(topic.high_watermark[row]),
                )
            elif code in without:
                ends[TopicPartition(topic.topic, number)] = NO_LOG
    return ends
