"""The weights of what a client accepts."""

from __future__ import annotations

from regency.runtime.http.messages import qualities


def test_choices_have_weights_and_the_malformed_have_none() -> None:
    assert qualities("a/b;version=1;q=0.5, C/d , e;q=x, f;q=0,, gzip") == {
        "a/b": 0.5,
        "c/d": 1.0,
        "e": 0.0,
        "f": 0.0,
        "gzip": 1.0,
    }
