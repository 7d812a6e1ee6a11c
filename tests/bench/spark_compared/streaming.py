"""Runs streams to the end there is, and looks at what they left."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spark_compared.cases_streaming import Look, StreamCase
from spark_compared.session import REFUSALS, Session
from spark_compared.verdicts import Got, Outcome, Refused

COLUMNS = ("topic", "partition", "offset", "key", "value", "timestamp", "timestampType")
_OFFSETS_LINE = 2
"""Of a file of the offset log: version, what the batch began with, then a line for each source."""


@dataclass(frozen=True, slots=True)
class _Ended:
    """What a stream left."""

    rows: list[tuple[Any, ...]]
    offsets: list[str]
    """Of every batch of the checkpoint, in its order."""
    metrics: list[str]


class Streams:
    """Runs streams; one that several cases look at runs once."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._ended: dict[tuple[str, str], _Ended | Refused] = {}
        self._begun: dict[str, Path] = {}

    def begin(self, connector: str, options: Mapping[str, str]) -> None:
        checkpoint = self._session.checkpoint(f"begun-{connector}")
        self._run(connector, options, checkpoint)
        self._begun[connector] = checkpoint

    def run(self, connector: str, case: StreamCase) -> Outcome:
        """The outcome by what the case looks at."""
        key = (connector, json.dumps([case.checkpoint_of, case.options], sort_keys=True))
        if key not in self._ended:
            checkpoint = self._session.checkpoint(f"{len(self._ended)}-{connector}")
            if case.checkpoint_of is not None:
                shutil.copytree(self._begun[case.checkpoint_of], checkpoint)
            try:
                self._ended[key] = self._run(connector, case.options, checkpoint)
            except REFUSALS as error:
                self._ended[key] = Refused(str(error))
        ended = self._ended[key]
        return ended if isinstance(ended, Refused) else _seen(ended, case.look)

    def _run(self, connector: str, options: Mapping[str, str], checkpoint: Path) -> _Ended:
        output = checkpoint.with_name(f"{checkpoint.name}-rows")
        query = (
            self._session.reader(connector, options, stream=True)
            .select(*COLUMNS)
            .writeStream.format("parquet")
            .option("path", str(output))
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        source = json.loads(query.lastProgress.json)["sources"][0]
        # file by file: the sink's own log begins with batch 0, which a checkpoint that was taken over has not
        files = sorted(str(path) for path in output.glob("*.parquet"))
        rows = self._session.spark.read.parquet(*files).collect() if files else []
        return _Ended(sorted((tuple(row) for row in rows), key=repr), _offset_log(checkpoint), _names(source))


def _names(source: dict[str, Any]) -> list[str]:
    return sorted(source.get("metrics") or {})


def _offset_log(checkpoint: Path) -> list[str]:
    batches = (path for path in (checkpoint / "offsets").iterdir() if path.name.isdigit())
    return [path.read_text().splitlines()[_OFFSETS_LINE] for path in sorted(batches, key=lambda path: int(path.name))]


def _seen(ended: _Ended, look: Look) -> Got:
    if look is Look.OFFSET_LOG:
        return Got([(text,) for text in ended.offsets])
    if look is Look.METRICS:
        return Got([(name,) for name in ended.metrics])
    offsets = [json.dumps(json.loads(text), sort_keys=True) for text in ended.offsets]
    return Got(ended.rows, "; ".join(offsets))
