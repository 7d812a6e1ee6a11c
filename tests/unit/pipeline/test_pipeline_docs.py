from __future__ import annotations

import re
from pathlib import Path

from regency.clients import settings
from regency.pipeline.option_table import READ_OPTIONS, Use
from regency.pipeline.reading.options import FORBIDDEN

PAGE = (
    (Path(__file__).parents[3] / "docs" / "reference" / "spark-options.md")
    .read_text()
    .partition("\n## Options of writing\n")[0]
)


def test_the_page_has_every_option_with_its_default_and_where_it_counts() -> None:
    cell = re.compile(r"^\| `(\w[\w.]*)` \| (?:`([^`]+)`|–) \| (batch, stream|batch|stream) \| \S", re.MULTILINE)
    told = {name: (default, Use(use)) for name, default, use in cell.findall(PAGE)}
    assert told == {option.name: (option.default, option.use) for option in READ_OPTIONS}
    assert list(told) == [option.name for option in READ_OPTIONS]


def test_the_page_has_every_setting_of_the_client_that_counts_or_is_forbidden() -> None:
    read = {*settings._NUMBERS, *settings._WORDS, "client.id", "security.protocol", *FORBIDDEN}
    assert [name for name in sorted(read) if f"`{name}`" not in PAGE] == []
