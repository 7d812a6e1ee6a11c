"""Lines become records, records become lines, and nothing fails in silence."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

import confluent_kafka
import pytest
from click.testing import Result

from regency.cli.data import consume, produce

Run = Callable[..., Result]
AT = ("--bootstrap-server", "nobody:1")
TIMED_OUT = confluent_kafka.KafkaError(confluent_kafka.KafkaError._MSG_TIMED_OUT)


class FakeProducer:
    """Delivers everything but values that begin with `bad`."""

    def __init__(self, config: dict[str, object]) -> None:
        self.config = config
        self.sent: list[tuple[str, bytes | None, bytes, int]] = []

    def produce(
        self, topic: str, value: bytes, key: bytes | None, partition: int, on_delivery: Callable[..., None]
    ) -> None:
        self.sent.append((topic, key, value, partition))
        on_delivery(TIMED_OUT if value.startswith(b"bad") else None, None)

    def poll(self, _: float) -> int:
        return 0

    def flush(self, _: float = 0) -> int:
        return 0

    def list_topics(self, *_: object, timeout: float) -> FakeMetadata:
        return FakeMetadata(exists=True)


@pytest.fixture
def producers(monkeypatch: pytest.MonkeyPatch) -> list[FakeProducer]:
    made: list[FakeProducer] = []

    def make(config: dict[str, object]) -> FakeProducer:
        made.append(FakeProducer(config))
        return made[-1]

    monkeypatch.setattr(produce.confluent_kafka, "Producer", make)
    monkeypatch.setattr(produce, "check_reachable", lambda *_: None)
    return made


def test_each_line_is_a_record(run: Run, producers: list[FakeProducer]) -> None:
    result = run("produce", "t", *AT, given="one\ntwo\r\n\nlast")
    assert (result.exit_code, result.stdout) == (0, "")
    assert [value for _, _, value, _ in producers[0].sent] == [b"one", b"two", b"", b"last"]
    assert result.stderr.startswith("Produced 4 records to t in ")
    assert (producers[0].config["acks"], producers[0].config["enable.idempotence"]) == ("all", True)


def test_key_separator_splits_at_the_first(run: Run, producers: list[FakeProducer]) -> None:
    run("produce", "t", *AT, "--key-separator", ":", "--acks", "1", "--partition", "1", given="a:b:c\n:d\n")
    assert producers[0].sent == [("t", b"a", b"b:c", 1), ("t", b"", b"d", 1)]
    assert (producers[0].config["acks"], producers[0].config["enable.idempotence"]) == ("1", False)


def test_line_without_a_key_ends_it_naming_the_line(run: Run, producers: list[FakeProducer]) -> None:
    result = run("produce", "t", *AT, "--key-separator", "|", given="a|1\nb 2\n")
    assert result.exit_code == 1
    assert result.stderr == "Error: Line 2 has no '|', so it has no key. The lines before it were sent.\n"


def test_failed_deliveries_are_counted_by_reason(run: Run, producers: list[FakeProducer]) -> None:
    result = run("produce", "t", *AT, "-o", "json", given="good\nbad\nbad\n")
    assert result.exit_code == 1
    assert json.loads(result.stdout) == {"topic": "t", "delivered": 1, "failed": 2, "errors": {TIMED_OUT.str(): 2}}
    assert f"Error: 2 failed: {TIMED_OUT.str()}." in result.stderr


@pytest.fixture(autouse=True)
def going(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Topics that are being deleted, and how far that is: none."""
    told: dict[str, str] = {}

    def why_going(_: str, topic: str) -> str | None:
        return told.get(topic)

    monkeypatch.setattr("regency.cli.data.produce.why_going", why_going)
    monkeypatch.setattr("regency.cli.asking.deletions.why_going", why_going)
    return told


def test_topic_that_is_being_deleted_is_named_with_what_it_waits_for(
    run: Run,
    producers: list[FakeProducer],
    consumer: Callable[..., FakeConsumer],
    monkeypatch: pytest.MonkeyPatch,
    going: dict[str, str],
) -> None:
    going["t"] = "Topic t is being deleted: 2 of 3 replicas are; broker 9 holds replicas."
    monkeypatch.setattr(FakeProducer, "list_topics", lambda *_, timeout: FakeMetadata(exists=False))
    consumer(exists=False)

    produced, consumed = run("produce", "t", *AT, given="bad\n"), run("consume", "t", *AT)

    assert (produced.exit_code, consumed.exit_code) == (1, 4)
    assert produced.stderr.endswith(f"{going['t']}\n")
    assert consumed.stderr == f"Error: {going['t']}\n"


def test_topic_that_nobody_creates_is_named_when_all_records_failed(
    run: Run, producers: list[FakeProducer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeProducer, "list_topics", lambda *_, timeout: FakeMetadata(exists=False))
    result = run("produce", "t", *AT, given="bad\n")
    assert result.exit_code == 1
    assert result.stderr.endswith("Unknown topic or partition. `regency topics create t` makes it.\n")


def test_produce_to_nobody_does_not_wait(run: Run) -> None:
    result = run("produce", "t", "--bootstrap-server", "127.0.0.1:1", given="x\n")
    assert (result.exit_code, result.stdout) == (5, "")
    assert result.stderr.startswith("Error: No broker answers at 127.0.0.1:1. ")


class FakeMessage:
    """A record as librdkafka hands it over."""

    def __init__(self, offset: int, value: bytes | None, key: bytes | None = None, headers: object = None) -> None:
        self._offset, self._value, self._key, self._headers = offset, value, key, headers

    def error(self) -> confluent_kafka.KafkaError | None:
        return None

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def headers(self) -> object:
        return self._headers

    def timestamp(self) -> tuple[int, int]:
        return (confluent_kafka.TIMESTAMP_CREATE_TIME, 1_700_000_000_000)


class FakeError(FakeMessage):
    """No record, but why there is none."""

    def error(self) -> confluent_kafka.KafkaError:
        return confluent_kafka.KafkaError(confluent_kafka.KafkaError._AUTO_OFFSET_RESET)


class FakeMetadata:
    """A topic with two partitions, or none at all."""

    def __init__(self, exists: bool) -> None:
        self.error = None if exists else confluent_kafka.KafkaError(3)
        self.partitions = {0: object(), 1: object()} if exists else {}
        self.topics = {"t": self}


class FakeConsumer:
    """Hands over its messages, then nothing."""

    def __init__(self, messages: Iterable[FakeMessage], exists: bool = True) -> None:
        self._messages = list(messages)
        self._exists = exists
        self.assigned: list[tuple[int, int]] = []
        self.offsets = (0, 0)
        self.ends_refused: list[int] = []
        """Error codes that are answered first where offsets are asked for."""
        self.looked_up = 0
        self.closed = False

    def list_topics(self, *_: object, timeout: float) -> FakeMetadata:
        self.looked_up += 1
        return FakeMetadata(self._exists)

    def assign(self, partitions: list[confluent_kafka.TopicPartition]) -> None:
        self.assigned = [(place.partition, place.offset) for place in partitions]

    def poll(self, _: float) -> FakeMessage | None:
        return self._messages.pop(0) if self._messages else None

    def get_watermark_offsets(self, _: confluent_kafka.TopicPartition, timeout: float) -> tuple[int, int]:
        if self.ends_refused:
            raise confluent_kafka.KafkaException(confluent_kafka.KafkaError(self.ends_refused.pop(0)))
        return self.offsets

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> Callable[..., FakeConsumer]:
    def arrange(*messages: FakeMessage, exists: bool = True) -> FakeConsumer:
        fake = FakeConsumer(messages, exists)
        monkeypatch.setattr(consume.confluent_kafka, "Consumer", lambda _: fake)
        monkeypatch.setattr(consume, "check_reachable", lambda *_: None)
        return fake

    return arrange


def test_values_are_printed_as_they_are(run: Run, consumer: Callable[..., FakeConsumer]) -> None:
    fake = consumer(FakeMessage(0, b"one"), FakeMessage(1, b"\xff\x00"), FakeMessage(2, None), FakeMessage(3, b"more"))
    result = run("consume", "t", *AT, "--from-beginning", "--max-messages", "3")
    assert (result.exit_code, result.stdout_bytes, result.stderr) == (0, b"one\n\xff\x00\n\n", "")
    assert fake.assigned == [(0, confluent_kafka.OFFSET_BEGINNING), (1, confluent_kafka.OFFSET_BEGINNING)]
    assert fake.closed


def test_json_has_one_object_a_line(run: Run, consumer: Callable[..., FakeConsumer]) -> None:
    consumer(FakeMessage(7, b"v", b"k", [("trace", b"1"), ("none", None)]), FakeMessage(8, b"\xff", None))
    result = run("consume", "t", *AT, "-o", "json", "--max-messages", "2")
    assert [json.loads(line) for line in result.stdout.splitlines()] == [
        {
            "topic": "t",
            "partition": 0,
            "offset": 7,
            "timestamp": 1_700_000_000_000,
            "key": "k",
            "value": "v",
            "headers": [["trace", "1"], ["none", None]],
            "encoding": "utf-8",
        },
        {
            "topic": "t",
            "partition": 0,
            "offset": 8,
            "timestamp": 1_700_000_000_000,
            "key": None,
            "value": "/w==",
            "headers": [],
            "encoding": "base64",
        },
    ]


def test_offset_of_one_partition(run: Run, consumer: Callable[..., FakeConsumer]) -> None:
    fake = consumer(FakeMessage(5, b"v", b"k"))
    result = run(
        "consume", "t", *AT, "--partition", "1", "--offset", "5", "--max-messages", "1", "--key-separator", "="
    )
    assert (result.stdout, fake.assigned) == ("k=v\n", [(1, 5)])


def test_timeout_alone_is_a_good_end_and_with_a_number_it_is_not(
    run: Run, consumer: Callable[..., FakeConsumer]
) -> None:
    consumer(FakeMessage(0, b"v"))
    assert run("consume", "t", *AT, "--timeout", "0.1").exit_code == 0
    consumer(FakeMessage(0, b"v"))
    result = run("consume", "t", *AT, "--timeout", "0.1", "--max-messages", "2")
    assert (result.exit_code, result.stderr) == (5, "Only 1 of 2 records came.\n")


def test_unknown_topic_and_partition_are_named(run: Run, consumer: Callable[..., FakeConsumer]) -> None:
    consumer(exists=False)
    result = run("consume", "t", *AT)
    assert result.exit_code == 1
    assert "Error: Topic t cannot be read: " in result.stderr
    assert "`regency topics create t`" in result.stderr
    consumer()
    result = run("consume", "t", *AT, "--partition", "9")
    assert result.stderr == "Error: Topic t has no partition 9. It has 0 to 1.\n"


def test_partition_named_twice_is_read_once(run: Run, consumer: Callable[..., FakeConsumer]) -> None:
    fake = consumer(FakeMessage(5, b"v"))
    run("consume", "t", *AT, "--partition", "1", "--partition", "1", "--offset", "5", "--max-messages", "1")
    assert fake.assigned == [(1, 5)]


@pytest.mark.parametrize("command", ["produce", "consume"])
def test_name_that_no_topic_can_have_is_refused_before_anybody_is_asked(run: Run, command: str) -> None:
    result = run(command, "fl\u00fcge", *AT)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("Error: topic name 'fl\u00fcge' is not allowed: it contains '\u00fc'.")


def test_produce_to_an_unknown_partition_says_which_there_are(run: Run, producers: list[FakeProducer]) -> None:
    result = run("produce", "t", *AT, "--partition", "9", given="one\n")
    assert result.stderr == "Error: Topic t has no partition 9. It has 0 to 1.\n"
    assert producers[0].sent == []


@pytest.mark.parametrize(
    ("offsets", "told"),
    [((2, 8), "It has 2 to 7."), ((0, 0), "It is empty; the next is 0."), ((3, 3), "the next is 3.")],
)
def test_offset_that_is_not_there_is_answered_with_those_that_are(
    run: Run, consumer: Callable[..., FakeConsumer], offsets: tuple[int, int], told: str
) -> None:
    consumer(FakeError(0, None)).offsets = offsets
    result = run("consume", "t", *AT, "--partition", "0", "--offset", "1000")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: t-0 has no record at this offset. ")
    assert result.stderr.endswith(f"{told}\n")


def test_a_leader_that_has_moved_is_looked_up_again_where_offsets_are_asked_for(
    run: Run, consumer: Callable[..., FakeConsumer]
) -> None:
    fake = consumer(FakeError(0, None))
    fake.offsets = (2, 8)
    fake.ends_refused = [
        confluent_kafka.KafkaError.NOT_LEADER_FOR_PARTITION,
        confluent_kafka.KafkaError.OFFSET_NOT_AVAILABLE,
    ]
    result = run("consume", "t", *AT, "--partition", "0", "--offset", "1000")
    assert (result.exit_code, result.stderr) == (1, "Error: t-0 has no record at this offset. It has 2 to 7.\n")
    assert fake.looked_up == 3, "once for its partitions, and after each refusal"


@pytest.mark.parametrize(
    "code", [confluent_kafka.KafkaError._TIMED_OUT, confluent_kafka.KafkaError.NOT_LEADER_FOR_PARTITION]
)
def test_a_leader_that_does_not_tell_its_offsets_costs_the_hint_and_no_traceback(
    run: Run, consumer: Callable[..., FakeConsumer], monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setattr(consume, "ANSWER_TIMEOUT_S", 0)
    consumer(FakeError(0, None)).ends_refused = [code] * 3
    result = run("consume", "t", *AT, "--partition", "0", "--offset", "1000")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: t-0 has no record at this offset. ")
    assert result.stderr.endswith("`regency topics describe t` shows who leads.\n")
