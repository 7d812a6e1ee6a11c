"""librdkafka's clients, which carry the records of `produce`, `consume` and `load`: quiet, and bounded in time."""

from __future__ import annotations

import logging
from collections import Counter

import confluent_kafka

from regency.cli.asking.wire import ANSWER_TIMEOUT_S, first_that_answers, unreachable

_silent = logging.getLogger("regency.cli.librdkafka")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False


class Deliveries:
    """Counts what became of each record, those that failed by reason."""

    def __init__(self) -> None:
        self.delivered = 0
        self.errors: Counter[str] = Counter()

    def __call__(self, error: confluent_kafka.KafkaError | None, _: confluent_kafka.Message) -> None:
        """Librdkafka's delivery callback."""
        if error is None:
            self.delivered += 1
        else:
            self.errors[error.str()] += 1


def client_config(servers: str) -> dict[str, object]:
    """Configuration that all of them share; the log goes nowhere, errors reach their callbacks."""
    return {"bootstrap.servers": servers, "client.id": "regency-cli", "logger": _silent}


def check_reachable(client: confluent_kafka.Producer | confluent_kafka.Consumer, servers: str) -> None:
    """Raises CommandFailed when no broker answers in 10 s."""
    first_that_answers(servers)
    try:
        client.list_topics(timeout=ANSWER_TIMEOUT_S)
    except confluent_kafka.KafkaException as error:
        raise unreachable(servers) from error
