"""What planning knows of the cluster: the partitions a query reads, and where their logs begin and end.

Used on the driver alone. Holds connections, so it is opened where it is needed and never pickled.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TypeVar

from regency.clients.cluster_client import ClusterClient, ClusterUnavailable, TopicGone
from regency.model.ids import TopicId, TopicPartition
from regency.pipeline.errors import DataLost, PipelineOptionInvalid, TopicUnknown
from regency.pipeline.reading.offsets import (
    EARLIEST,
    LATEST,
    ByPartition,
    ByTimestamp,
    Everywhere,
    Limit,
    Offsets,
    in_short,
    named,
    named_partitions,
)
from regency.pipeline.reading.options import ReadOptions
from regency.pipeline.reading.topic_choice import absent_of, chosen_of, topics_named

log = logging.getLogger("regency.pipeline")

T = TypeVar("T")


class ClusterView:
    """The cluster as a query with these options sees it. For one thread."""

    def __init__(self, options: ReadOptions, *, client: ClusterClient | None = None) -> None:
        self._options = options
        self._client = client or ClusterClient(options.client, on_silence=self._silence)
        self._answered = False
        self.topic_ids: dict[str, TopicId] = {}
        """Of the topics that are read and were there when `partitions` looked last."""
        self.absent: list[str] = []
        """What the options name and was not there then, in words."""

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def partitions(self) -> set[TopicPartition]:
        """The partitions that are to be read, of those there are now."""
        found = self._retried(partial(self._client.topics, topics_named(self._options.topics)))
        there = {name: facts.partitions for name, facts in found.items()}
        chosen = chosen_of(self._options.topics, there)
        self.topic_ids = {topic: found[topic].topic_id for topic in sorted({name.topic for name in chosen})}
        self.absent = absent_of(self._options.topics, there)
        return chosen

    def partitions_of_a_new_query(self) -> set[TopicPartition]:
        """The same, where everything that is named must be there. Raises TopicUnknown."""
        found = self.partitions()
        if self.absent:
            raise self.unknown()
        return found

    def unknown(self) -> TopicUnknown:
        """The error about what is absent."""
        return TopicUnknown(
            f"The cluster at {self._options.client.servers} has no {', no '.join(self.absent)}.",
            hint="Check the spelling, or create what is missing: `regency topics list`, `regency topics create`.",
        )

    def at(self, offset: int, partitions: Collection[TopicPartition]) -> Offsets:
        """The earliest (-2) or latest (-1) offsets; partitions that vanished meanwhile are left out."""
        answered = self._asked(dict.fromkeys(partitions, offset))
        return {name: found for name, found in answered.items() if found is not None}

    def since(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The first offset with a record at or after a time in wall milliseconds; None where there is none.

        Partitions that vanished meanwhile are left out.
        """
        return self._asked(timestamps)

    def latest(self, known: Mapping[TopicPartition, int]) -> Offsets:
        """The latest offsets of all partitions to read; asked again while one is below what is `known`.

        A leader that has just been elected may lag behind for a moment. What stays below is returned as it is.
        """
        for attempt in range(1, self._options.retries + 1):
            found = self.at(LATEST, self.partitions())
            behind = [name for name, offset in found.items() if known.get(name, offset) > offset]
            if not behind or attempt == self._options.retries:
                break
            log.warning("The logs of %s end before what was read already; looking again.", named(behind))
            self._pause()
        return found

    def resolved(self, limit: Limit, partitions: Collection[TopicPartition], *, option: str) -> Offsets:
        """The offsets of a limit, of exactly these partitions. `option` begins its name in errors.

        Raises PipelineOptionInvalid where a limit names other partitions, or no record is as new as it has to be.
        """
        if isinstance(limit, Everywhere):
            return self.at(limit.offset, partitions)
        self._check_names(limit, partitions, option)
        if isinstance(limit, ByPartition):
            return self._resolved_offsets(limit, option)
        return self._resolved_times(limit, partitions, option)

    def _check_names(self, limit: Limit, partitions: Collection[TopicPartition], option: str) -> None:
        there = named_partitions(limit)
        if there is None or there == set(partitions):
            return
        of_times = isinstance(limit, ByTimestamp)
        missing, odd = set(partitions) - there, there - set(partitions)
        words = [f"{named(missing)} {'is' if len(missing) == 1 else 'are'} missing"] if missing else []
        words += [f"{named(odd)} {'is' if len(odd) == 1 else 'are'} not read by this query"] if odd else []
        raise PipelineOptionInvalid(
            f"{option}Offsets{'ByTimestamp' if of_times else ''}",
            f"it must name every partition that is read: {'; '.join(words)}",
            hint="Give a time for each." if of_times else "Give -2 for the earliest, -1 for the latest.",
        )

    def _resolved_offsets(self, limit: ByPartition, option: str) -> Offsets:
        """The offsets, none outside its log: one that is counts as lost records."""
        starts, ends = self.at(EARLIEST, limit.offsets), self.at(LATEST, limit.offsets)
        found: Offsets = {}
        outside: list[str] = []
        for name, offset in limit.offsets.items():
            if name not in starts or name not in ends:
                continue  # vanished since it was seen; planning tells what that means
            if offset in (EARLIEST, LATEST):
                found[name] = starts[name] if offset == EARLIEST else ends[name]
                continue
            found[name] = min(max(offset, starts[name]), ends[name])
            if found[name] != offset:
                outside.append(
                    f"option {option}Offsets has {offset} for {name}, whose log holds offsets {starts[name]} up to but"
                    f" without {ends[name]}"
                )
        self.lost(outside)
        return found

    def _resolved_times(self, limit: ByTimestamp, partitions: Collection[TopicPartition], option: str) -> Offsets:
        looked_up = self.since({name: limit.of(name) for name in partitions})
        newer = {name: offset for name, offset in looked_up.items() if offset is not None}
        older = [name for name, offset in looked_up.items() if offset is None]
        if older and not limit.latest_if_none:
            raise PipelineOptionInvalid(
                f"{option}Timestamp" if isinstance(limit.timestamps, int) else f"{option}OffsetsByTimestamp",
                f"there is no record at or after {limit.of(min(older))} in {named(older)}",
                hint=f"Give an earlier time, or {option}OffsetsByTimestampStrategy=latest to begin at the end.",
            )
        return newer | self.at(LATEST, older)

    def lost(self, what: Iterable[str]) -> None:
        """Records are gone, each of these says some. Raises DataLost, or warns where failOnDataLoss is false."""
        losses = list(what)
        if not losses:
            return
        words = in_short(losses, separator="; ")
        if self._options.fail_on_data_loss:
            raise DataLost(f"Records are or may be lost: {words}.")
        log.warning("Records are or may be lost: %s. failOnDataLoss is false: going on with what is left.", words)

    def _asked(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """Offsets of those that exist; topics that go away while they are asked about are left out."""
        left = dict(wanted)
        while left:
            try:
                return dict(self._retried(partial(self._client.offsets, left)))
            except TopicGone as gone:
                topics = sorted({name.topic for name in left})
                found = self._retried(partial(self._client.topics, topics))
                there = {topic: facts.partitions for topic, facts in found.items()}
                still = [name for name in left if name.partition in there.get(name.topic, ())]
                if len(still) == len(left):  # metadata has not heard yet
                    still = [name for name in left if name.topic != gone.topic]
                left = {name: left[name] for name in still}
        return {}

    def _retried(self, ask: Callable[[], T]) -> T:
        """What the cluster answers, asked fetchOffset.numRetries times. Raises ClusterUnavailable.

        Where no broker has ever answered the first question is the last, with all the time and all the attempts it has
        in itself: the address is more likely to be wrong than the cluster to be back.
        """
        for attempt in range(1, self._options.retries + 1):
            try:
                answer = ask()
            except ClusterUnavailable as error:
                if attempt == self._options.retries or (error.silent and not self._answered):
                    raise
                log.warning("%s Asking again, attempt %d of %d.", error, attempt + 1, self._options.retries)
                self._pause()
            else:
                self._answered = True
                return answer
        raise AssertionError("fetchOffset.numRetries is at least 1")

    def _silence(self, error: ClusterUnavailable) -> None:
        limit_ms = self._options.client.api_timeout_ms
        log.warning("%s Asking for %d ms in all (kafka.default.api.timeout.ms).", error, limit_ms)

    def _pause(self) -> None:
        time.sleep(self._options.retry_interval_ms / 1000)
