"""Lines become records, records become lines, and nothing fails in silence."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

import confluent_kafka
import pytest
from click.testing import Result
from fake_cluster import FakeCluster, partition

from regency.cli.asking.wire import TopicFacts
from regency.cli.data import consume, produce
from regency.model.ids import BrokerId
from regency.protos import admin_pb2

Run = Callable[..., Result]
AT = ("--bootstrap-server", "nobody:1")
TIMED_OUT = confluent_kafka.KafkaError(confluent_kafka.KafkaError._MSG_TIMED_OUT)


class FakeProducer:
    """Delivers everything but values that begin with `bad`."""

    def __init__(self, config: dict[str, object]) -> None:
        self.config = config
        self.sent: list[tuple[str, bytes | None, bytes | None, int]] = []
        self.headers: object = None

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        on_delivery: Callable[..., None],
        headers: object,
    ) -> None:
        self.sent.append((topic, key, value, partition))
        self.headers = headers
        if value == b"unanswered":
            raise KeyboardInterrupt
        on_delivery(TIMED_OUT if value is not None and value.startswith(b"bad") else None, None)

    def poll(self, _: float) -> int:
        return 0

    def flush(self, _: float = 0) -> int:
        return sum(value == b"unanswered" for _, _, value, _ in self.sent)


@pytest.fixture(autouse=True)
def fake(connect: Callable[[FakeCluster], None]) -> FakeCluster:
    """Topic t with two partitions that brokers 1 and 2 lead."""
    made = FakeCluster()
    made.known = [TopicFacts("t", [partition(0, 1, [1, 2]), partition(1, 2, [2, 3])])]
    connect(made)
    return made


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
    assert (result.exit_code, result.stderr) == (0, "")
    assert [value for _, _, value, _ in producers[0].sent] == [b"one", b"two", b"", b"last"]
    assert result.stdout.startswith("Produced 4 records to t in ")
    assert (producers[0].config["acks"], producers[0].config["enable.idempotence"]) == ("all", True)


def test_key_separator_splits_at_the_first(run: Run, producers: list[FakeProducer]) -> None:
    run("produce", "t", *AT, "--key-separator", ":", "--acks", "1", "--partition", "1", given="a:b:c\n:d\n")
    assert producers[0].sent == [("t", b"a", b"b:c", 1), ("t", b"", b"d", 1)]
    assert (producers[0].config["acks"], producers[0].config["enable.idempotence"]) == ("1", False)


def test_line_without_a_key_ends_it_naming_the_line(run: Run, producers: list[FakeProducer]) -> None:
    result = run("produce", "t", *AT, "--key-separator", "|", given="a|1\nb 2\n")
    assert result.exit_code == 1
    assert result.stdout.startswith("Produced 1 record to t in ")
    assert result.stderr == ("Error: Line 2 has no '|', so it has no key. The lines before it were sent.\n")


def test_failed_deliveries_are_counted_by_reason(run: Run, producers: list[FakeProducer]) -> None:
    result = run("produce", "t", *AT, "-o", "json", given="good\nbad\nbad\n")
    assert result.exit_code == 1
    assert json.loads(result.stdout) == {
        "topic": "t",
        "delivered": 1,
        "failed": 2,
        "unanswered": 0,
        "errors": {TIMED_OUT.str(): 2},
        "problems": [],
    }
    assert f"Error: 2 failed: {TIMED_OUT.str()}." in result.stderr


@pytest.mark.parametrize(
    ("unwell", "why"),
    [
        ({"known": [TopicFacts("t", [partition(0, -1, [1, 2])])]}, "t-0 has no leader (its replicas are on 1, 2)"),
        ({"silent": [BrokerId(2)]}, "broker 2, which leads t-1, does not answer"),
        (
            {"known": [TopicFacts("t", [partition(0, 1, [1, 2], [1])])], "min_isr": 2},
            "NOT_ENOUGH_REPLICAS: t-0 has 1 in sync, min.insync.replicas is 2",
        ),
    ],
)
def test_why_records_failed_is_asked_of_the_cluster(
    run: Run, producers: list[FakeProducer], fake: FakeCluster, unwell: dict[str, object], why: str
) -> None:
    for name, value in unwell.items():
        setattr(fake, name, value)
    result = run("produce", "t", *AT, "-o", "json", given="bad\n")
    assert (result.exit_code, json.loads(result.stdout)["problems"]) == (1, [why])
    assert result.stderr.endswith(f"Why: {why}.\n")


def test_what_can_never_be_written_is_refused_before_a_line_is_read(
    run: Run, producers: list[FakeProducer], fake: FakeCluster
) -> None:
    fake.min_isr = 3
    result = run("produce", "t", *AT, given="one\n")
    assert (result.exit_code, producers) == (1, [])
    assert "Topic t has 2 replicas and min.insync.replicas=3: nothing can ever be written" in result.stderr
    assert "`regency topics set-rf t 3`" in result.stderr
    assert run("produce", "t", *AT, "--acks", "1", given="one\n").exit_code == 0


def test_ctrl_c_tells_what_was_delivered_and_what_is_not_known(run: Run, producers: list[FakeProducer]) -> None:
    result = run("produce", "t", *AT, "-o", "json", given="one\nunanswered\nnever\n")
    told = json.loads(result.stdout)
    assert (result.exit_code, told["delivered"], told["unanswered"]) == (130, 1, 1)
    assert "Produced 1 record to t in " in result.stderr
    assert "1 without an answer: they may have been written." in result.stderr


def test_topic_that_is_being_deleted_is_named_with_what_it_waits_for(
    run: Run, producers: list[FakeProducer], fake: FakeCluster
) -> None:
    fake.known = []
    fake.deletions = [admin_pb2.Deletion(topic="t", replicas=3, deleted=2, waits_for="broker 9 holds replicas")]
    for command in ("produce", "consume"):
        result = run(command, "t", *AT, given="x\n")
        assert (result.exit_code, result.stderr) == (
            4,
            "Error: Topic t is being deleted: 2 of 3 replicas are; broker 9 holds replicas.\n",
        )


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("produce", "Did you mean t? `regency topics create tt` makes it, and so does --create."),
        ("consume", "Did you mean t?"),
    ],
)
def test_a_misspelt_topic_is_not_made_but_named_with_the_nearest(
    run: Run, producers: list[FakeProducer], command: str, told: str
) -> None:
    result = run(command, "tt", *AT, given="x\n")
    assert (result.exit_code, result.stderr) == (1, f"Error: There is no topic tt. {told}\n")
    assert producers == []


def test_produce_creates_a_topic_where_that_is_said(
    run: Run, producers: list[FakeProducer], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    monkeypatch.setattr(produce, "ensure_topic", lambda _, topic: made.append(topic))
    assert run("produce", "new", *AT, "--create", given="x\n").exit_code == 0
    assert (made, len(producers[0].sent)) == (["new"], 1)


def test_headers_keys_tombstones_and_how_records_are_spread(run: Run, producers: list[FakeProducer]) -> None:
    words = ("--key-separator", ":", "--tombstones", "--header", "a=1", "--header", "b=", "--header", "a=c=d")
    assert run("produce", "t", *AT, *words, "--compression", "zstd", given="k:v\nk:\n").exit_code == 0
    assert producers[0].sent == [("t", b"k", b"v", -1), ("t", b"k", None, -1)]
    assert producers[0].headers == [("a", b"1"), ("b", b""), ("a", b"c=d")], "a name may come several times"
    config = producers[0].config
    assert (config["compression.type"], config["partitioner"]) == ("zstd", "consistent_random")
    assert config["sticky.partitioning.linger.ms"] == 0
    run("produce", "t", *AT, "--key", "k", "--sticky", "--partitioner", "murmur2_random", given="v\n")
    assert (producers[1].sent, producers[1].config["partitioner"]) == ([("t", b"k", b"v", -1)], "murmur2_random")
    assert "sticky.partitioning.linger.ms" not in producers[1].config


@pytest.mark.parametrize(
    "words",
    [
        ("produce", "t", "--tombstones"),
        ("produce", "t", "--key", "k", "--key-separator", ":"),
        ("produce", "t", "--header", "novalue"),
        ("consume", "t", "--offset", "x"),
        ("consume", "t", "--offset", "@never"),
        ("consume", "t", "--format", "%q"),
        ("consume", "t", "--format", "%v", "--key-separator", ":"),
    ],
)
def test_options_that_make_no_sense_are_status_2(run: Run, words: tuple[str, ...]) -> None:
    assert run(*words, *AT).exit_code == 2


def test_produce_to_nobody_does_not_wait(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # the cluster of the other tests
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


class FakeEnd(FakeMessage):
    """The end of a partition."""

    def __init__(self, partition: int) -> None:
        super().__init__(0, None)
        self._partition = partition

    def error(self) -> confluent_kafka.KafkaError:
        return confluent_kafka.KafkaError(confluent_kafka.KafkaError._PARTITION_EOF)

    def partition(self) -> int:
        return self._partition


class FakeMetadata:
    """A topic with two partitions, or none at all."""

    def __init__(self, exists: bool) -> None:
        self.error = None if exists else confluent_kafka.KafkaError(3)
        self.partitions = {0: object(), 1: object()} if exists else {}
        self.topics = {"t": self}


class FakeConsumer:
    """Hands over its messages, then nothing."""

    def __init__(self, messages: Iterable[FakeMessage]) -> None:
        self._messages = list(messages)
        self.assigned: list[tuple[int, int]] = []
        self.offsets = (0, 0)
        self.ends_refused: list[int] = []
        """Error codes that are answered first where offsets are asked for."""
        self.looked_up = 0
        self.closed = False

    def list_topics(self, *_: object, timeout: float) -> FakeMetadata:
        self.looked_up += 1
        return FakeMetadata(exists=True)

    def assign(self, partitions: list[confluent_kafka.TopicPartition]) -> None:
        self.assigned = [(place.partition, place.offset) for place in partitions]

    def offsets_for_times(
        self, asked: list[confluent_kafka.TopicPartition], timeout: float
    ) -> list[confluent_kafka.TopicPartition]:
        self.moments = [each.offset for each in asked]
        return [confluent_kafka.TopicPartition(each.topic, each.partition, 40) for each in asked]

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
    def arrange(*messages: FakeMessage) -> FakeConsumer:
        fake = FakeConsumer(messages)
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


def test_an_unknown_partition_is_named(run: Run, consumer: Callable[..., FakeConsumer]) -> None:
    consumer()
    result = run("consume", "t", *AT, "--partition", "9")
    assert (result.exit_code, result.stderr) == (1, "Error: Topic t has no partition 9. It has 0 to 1.\n")


def test_a_partition_without_a_leader_is_no_good_end(
    run: Run, consumer: Callable[..., FakeConsumer], fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.known[0].partitions[0].leader_id = -1
    consumer(FakeMessage(0, b"v"))
    result = run("consume", "t", *AT, "--timeout", "0.1")
    words = "t-0 has no leader (its replicas are on 1, 2)"
    assert (result.exit_code, result.stdout) == (1, "v\n")
    assert result.stderr.splitlines() == [
        f"Note: {words}; nothing can be read of it until that ends.",
        f"Error: Not everything could be read: {words}. `regency cluster health` shows what is missing.",
    ]
    monkeypatch.setattr(consume, "IDLE_S", 0)
    monkeypatch.setattr(consume, "NO_LEADER_S", 0)
    consumer(FakeMessage(0, b"v"))
    assert run("consume", "t", *AT, "--partition", "0").exit_code == 1, "without a limit of time it ends as well"
    fake.known[0].partitions[0].leader_id = 1
    consumer(FakeMessage(0, b"v"))
    assert run("consume", "t", *AT, "--timeout", "0.1").exit_code == 0


def test_the_last_records_of_each_and_those_since_a_moment(run: Run, consumer: Callable[..., FakeConsumer]) -> None:
    fake = consumer(FakeMessage(7, b"v"))
    fake.offsets = (3, 8)
    run("consume", "t", *AT, "--offset", "-2", "--max-messages", "1")
    assert fake.assigned == [(0, 6), (1, 6)]
    fake = consumer(FakeMessage(7, b"v"))
    fake.offsets = (3, 4)
    run("consume", "t", *AT, "--offset", "-2", "--max-messages", "1")
    assert fake.assigned == [(0, 3), (1, 3)]
    fake = consumer(FakeMessage(7, b"v"))
    run("consume", "t", *AT, "--offset", "@2026-05-04T14:30:00+00:00", "--max-messages", "1")
    assert (fake.assigned, fake.moments) == ([(0, 40), (1, 40)], [1777905000000] * 2)
    fake = consumer(FakeMessage(7, b"v"))
    run("consume", "t", *AT, "--offset", "@1777905000123", "--max-messages", "1")
    assert fake.moments == [1777905000123] * 2, "as records have it"


def test_the_end_ends_it_when_all_partitions_have_come_to_it(run: Run, consumer: Callable[..., FakeConsumer]) -> None:
    consumer(FakeMessage(0, b"v"), FakeEnd(0), FakeEnd(0), FakeMessage(1, b"w"), FakeEnd(1), FakeMessage(2, b"late"))
    result = run("consume", "t", *AT, "--from-beginning", "--until-end")
    assert (result.exit_code, result.stdout) == (0, "v\nw\n")


def test_a_format_has_what_a_record_has(run: Run, consumer: Callable[..., FakeConsumer]) -> None:
    consumer(FakeMessage(7, b"v", b"k", [("a", b"1"), ("b", None)]))
    result = run("consume", "t", *AT, "--max-messages", "1", "--format", r"%t-%p %o %T %k=%v %h 100%%\n\t.")
    assert result.stdout == "t-0 7 1700000000000 k=v a=1,b= 100%\n\t."


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
    assert producers == []


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
    assert fake.looked_up == 2, "after each refusal"


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
