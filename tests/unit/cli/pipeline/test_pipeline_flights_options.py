"""What `regency pipeline flights` refuses before it asks a broker or starts Spark."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from regency.cli.main import cli


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "Missing option '--to'"),
        (["--to", "d", "--flights", "5"], "--flights says how many --produce writes."),
        (["--to", "d", "--to-topic", "x", "--no-topic"], "--to-topic and --no-topic contradict each other."),
        (["--to", "d", "--to-topic", "flights"], "--to-topic is the topic that is read."),
        (["--to", "d", "--bad-records", "keep"], "'keep' is not one of 'fail', 'skip'"),
        (["--to", "d", "--produce", "--flights", "0"], "0 is not in the range"),
        (["--to", "d", "--max-offsets", "0"], "0 is not in the range"),
    ],
)
def test_words_that_contradict_are_refused(words: list[str], said: str) -> None:
    done = CliRunner().invoke(cli, ["pipeline", "flights", *words], prog_name="regency")
    assert done.exit_code == 2
    assert said in done.stderr


def test_a_name_that_no_topic_may_have_is_refused() -> None:
    words = ["pipeline", "flights", "--to", "d", "--to-topic", "a b"]
    done = CliRunner().invoke(cli, words, prog_name="regency")
    assert done.exit_code == 1
    assert "a b" in done.stderr
