"""What is a request, and what an answer looks like."""

from __future__ import annotations

import pytest

from regency.runtime.http.messages import BadRequest, Request, Response, encode, parse_head, qualities


def test_a_request_has_a_path_a_query_and_headers_in_lower_case() -> None:
    head = b"GET /metrics?name[]=a%20b&name[]=c&x=1 HTTP/1.1\r\nHost: here\r\nACCEPT: text/plain\r\nAccept: */*;q=0.1"
    assert parse_head(head) == Request(
        "GET",
        "/metrics",
        {"name[]": ["a b", "c"], "x": ["1"]},
        {"host": "here", "accept": "text/plain, */*;q=0.1"},
    )


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"GET /",
        b"GET / HTTP/2",
        b"GET  / HTTP/1.1",
        b"G3T / HTTP/1.1",
        b"GET metrics HTTP/1.1",
        b"GET / HTTP/1.1\r\nno colon",
        b"GET / HTTP/1.1\r\n: no name",
        b"GET / HTTP/1.1\r\n folded: line",
        b"GET / HTTP/1.1" + b"\r\na: b" * 65,
        b"GET /?" + b"&".join(b"a=%d" % n for n in range(1001)) + b" HTTP/1.1",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
def test_what_is_no_request_is_refused(head: bytes) -> None:
    with pytest.raises(BadRequest):
        parse_head(head)


def test_an_answer_tells_its_length_and_that_the_connection_ends() -> None:
    response = Response(200, b"hello", {"Content-Type": "text/plain"})
    head, _, body = encode(response, body=True).partition(b"\r\n\r\n")
    assert head.split(b"\r\n")[0] == b"HTTP/1.1 200 OK"
    assert {b"Content-Type: text/plain", b"Content-Length: 5", b"Connection: close"} < set(head.split(b"\r\n"))
    assert body == b"hello"
    assert encode(response, body=False) == head + b"\r\n\r\n"


def test_choices_have_weights_and_the_malformed_have_none() -> None:
    assert qualities("a/b;version=1;q=0.5, C/d , e;q=x, f;q=0,, gzip") == {
        "a/b": 0.5,
        "c/d": 1.0,
        "e": 0.0,
        "f": 0.0,
        "gzip": 1.0,
    }
