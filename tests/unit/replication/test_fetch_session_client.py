"""A follower's side of a fetch session: what the next request must say."""

from __future__ import annotations

from uuid import UUID

from regency.kafka.fetching.session import ClientFetchSession
from regency.kafka.fetching.values import FetchPartition
from regency.model.ids import Offset, TopicId, TopicPartition
from regency.model.kafka_errors import ErrorCode

ID = TopicId(UUID(int=1))
A, B, C = (TopicPartition("t", number) for number in range(3))


def entries(*names: TopicPartition) -> list[FetchPartition]:
    return [FetchPartition(name, ID, Offset(0), 100) for name in names]


def opened(*names: TopicPartition) -> ClientFetchSession:
    session = ClientFetchSession()
    session.build(entries(*names))
    session.answered(9)
    return session


def test_the_first_request_names_everything_and_asks_for_a_session() -> None:
    session = ClientFetchSession()
    assert session.candidates([A, B]) == [A, B]
    assert session.build(entries(A, B)) == (0, 0, [])
    assert session.names == {(ID, 0): A, (ID, 1): B}


def test_later_requests_name_what_changed_and_what_left() -> None:
    session = opened(A, B)
    assert session.build([]) == (9, 1, [])
    session.answered(9)
    session.changed(C)
    session.left(A)
    assert session.candidates([A, B, C]) == [C]
    assert session.build(entries(C)) == (9, 2, [(A, ID)])
    assert session.names == {(ID, 1): B, (ID, 2): C}


def test_what_left_and_came_back_before_the_next_request_is_only_named() -> None:
    session = opened(A, B)
    session.left(A)
    session.changed(A)
    assert session.build(entries(A)) == (9, 1, [])


def test_a_request_that_would_leave_the_session_empty_is_not_sent() -> None:
    session = opened(A)
    assert not session.would_be_empty([])
    session.left(A)
    assert session.would_be_empty([])
    assert not session.would_be_empty(entries(B))


def test_a_leader_without_room_is_asked_for_everything_every_time() -> None:
    session = ClientFetchSession()
    session.build(entries(A))
    session.answered(0)
    assert session.is_full
    assert session.build(entries(A)) == (0, 0, [])


def test_after_a_failure_the_old_session_is_closed_and_everything_named() -> None:
    session = opened(A, B)
    session.failed()
    assert session.build(entries(A)) == (9, 0, [])
    assert session.names == {(ID, 0): A}


def test_an_unknown_session_is_begun_anew_and_another_error_closes_it() -> None:
    session = opened(A)
    session.refused(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
    assert session.build(entries(A))[:2] == (9, 0)
    session.answered(10)
    session.refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    assert session.build(entries(A))[:2] == (0, 0)


def test_session_epochs_wrap_to_one() -> None:
    session = opened(A)
    session._epoch = 2**31 - 1
    session.build([])
    session.answered(9)
    assert session.build([])[:2] == (9, 1)
