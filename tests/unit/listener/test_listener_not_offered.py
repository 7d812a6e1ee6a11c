"""What is not there is not among the APIs that clients are told of, so that they say so themselves."""

from __future__ import annotations

import pytest

from regency.kafka.apis import OFFERED

NOT_OFFERED = {
    "AddPartitionsToTxn": 24,
    "AddOffsetsToTxn": 25,
    "EndTxn": 26,
    "WriteTxnMarkers": 27,
    "TxnOffsetCommit": 28,
    "DescribeTransactions": 65,
    "ListTransactions": 66,
    "ConsumerGroupHeartbeat": 68,
    "ConsumerGroupDescribe": 69,
    "DescribeTopicPartitions": 75,
}


@pytest.mark.parametrize(("name", "key"), NOT_OFFERED.items())
def test_apis_of_what_is_not_there_are_not_offered(name: str, key: int) -> None:
    assert key not in {int(api) for api in OFFERED}, name
