from __future__ import annotations

import re
from pathlib import Path

from regency.pipeline.sink import settings as sink_settings
from regency.pipeline.sink.options import _STREAMS_ONLY, WRITE_OPTIONS

PAGE = (
    (Path(__file__).parents[3] / "docs" / "reference" / "spark-options.md")
    .read_text()
    .partition("\n## Options of writing\n")[2]
)


def test_the_page_has_every_option_and_where_it_counts() -> None:
    told = dict(re.findall(r"^\| `(\w+)` \| (?:`\w+`|–) \| (batch, stream|stream) \| \S", PAGE, re.MULTILINE))
    assert list(told) == list(WRITE_OPTIONS)
    assert {name for name, use in told.items() if use == "stream"} == set(_STREAMS_ONLY)


def test_the_page_has_every_setting_of_the_producer_that_counts_or_is_forbidden() -> None:
    forbidden = {name for name in sink_settings.FORBIDDEN if not name.startswith("sasl.")}
    known = {*sink_settings._PRODUCER, *sink_settings._OURS, *forbidden}
    assert [name for name in sorted(known) if f"`{name}`" not in PAGE and f"`kafka.{name}`" not in PAGE] == []
