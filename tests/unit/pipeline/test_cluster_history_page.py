"""The report's page and plots, without Spark: whole by themselves, and safe whatever stands in the records."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

from regency.pipeline.jobs.cluster_history import page


def test_a_page_escapes_what_stands_in_the_records() -> None:
    text = page.document(
        "<x>", [page.note("<b>"), page.problem("a & b"), page.table(["<h>"], [["<script>", None, 1234]])]
    )
    assert "<script>" not in text and "<b>" not in text and "<x>" not in text and "<h>" not in text
    assert '<td>&lt;script&gt;</td><td>–</td><td class="number">1,234</td>' in text


@pytest.mark.parametrize(
    ("ms", "words"),
    [
        (None, "–"),
        (0, "0 ms"),
        (999, "999 ms"),
        (1000, "1.0 s"),
        (90_000, "1.5 min"),
        (5_400_000, "1.5 h"),
        (1.3e8, "1.5 d"),
    ],
)
def test_durations_are_for_people(ms: float | None, words: str) -> None:
    assert page.span(ms) == words


def test_one_is_no_plural() -> None:
    assert [page.many(number, "file", "files") for number in (0, 1, 2000)] == ["0 files", "1 file", "2000 files"]


def test_moments_are_utc() -> None:
    assert page.moment(1_777_939_190_007) == "2026-05-04 23:59:50.007"


def test_plots_have_labels_and_nothing_from_elsewhere() -> None:
    days = [f"2026-05-{day:02}" for day in range(1, 31)]
    made = [
        page.columns("one", days, {"broker 1": [1.0] * 30, "a $x_1$ & <b>": [0.5] * 30}, "seconds"),
        page.bars("two", ["flights-1", "f" * 249], {"seconds": [3.0, 0.0]}, "seconds"),
    ]
    ids: list[str] = []
    for text in made:
        ET.fromstring(text)
        assert text.startswith("<svg")
        assert not re.search(r"<(image|script|style[^>]*>[^<]*@import)|href=\"(?!#)|url\((?!#)", text)
        ids += re.findall(r' id="([a-z]\w{10,})"', text)
    assert "a $x_1$ &amp; &lt;b&gt;" in made[0]
    assert "flights-1" in made[1] and "f" * 38 + "…" in made[1] and "f" * 39 not in made[1]
    assert len(ids) == len(set(ids))
