"""Which partitions may be led by a replica that was not in sync: what settings say, read when it is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from regency.controller.state.context import ControllerContext
from regency.controller.store.cluster_store import ClusterStore
from regency.model.ids import BrokerId, TopicPartition

UNCLEAN_KEY = "unclean.leader.election.enable"


class UncleanLeave:
    """Leave for unclean elections. `broker` is where this controller runs, `default` what its file says."""

    def __init__(self, context: ControllerContext, store: ClusterStore, broker: BrokerId, *, default: bool) -> None:
        self._context = context
        self._store = store
        self._broker = broker
        self._default = default

    def among(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Those with a live replica whose settings allow a leader out of sync; settings that cannot be read do not.

        A partition for which an unclean election was asked needs no leave.
        """
        context = self._context
        able = [each for each in partitions if not context.usable.isdisjoint(context.assignment(each).replicas)]
        forced = {each for each in able if (inquiry := context.inquiries.get(each)) is not None and inquiry.forced}
        topics = sorted({partition.topic for partition in able if partition not in forced})
        configs = self._store.topic_configs(topics) if topics else {}
        silent = any(config is not None and _leave(config) is None for config in configs.values())
        default = silent and self._by_default()
        allowing = {topic for topic, config in configs.items() if config is not None and _allows(config, default)}
        return [partition for partition in able if partition in forced or partition.topic in allowing]

    def _by_default(self) -> bool:
        """What holds for topics that say nothing: the settings of this broker, of all brokers, then of the file."""
        for config in self._store.broker_configs((self._broker, None)):
            if config is None:
                return False
            leave = _leave(config)
            if leave is not None:
                return leave
        return self._default


def _leave(config: Mapping[str, str]) -> bool | None:
    value = config.get(UNCLEAN_KEY)
    return None if value is None else value.strip().lower() == "true"


def _allows(config: Mapping[str, str], default: bool) -> bool:
    leave = _leave(config)
    return default if leave is None else leave
