"""Creates topics because a client asked for their metadata or for a coordinator, while the client asks again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Final

from regency.broker_agent.control.admin_forwarder import AdminForwarder, envelope
from regency.broker_agent.control.metadata_cache import MetadataSnapshot
from regency.kafka.apis import OFFERED, ApiKey
from regency.kafka.codec import CreateTopicsRequest, Message, decode_body, encode_body
from regency.kafka.groups.placement import OFFSETS_TOPIC
from regency.model.errors import RegencyError
from regency.model.kafka_errors import ErrorCode
from regency.model.principals import RequestContext
from regency.model.settings import BrokerSettings
from regency.runtime.logging import is_power_of_ten

logger = logging.getLogger(__name__)

MAX_PENDING: Final = 1000
"""Topics being created at once; more are not begun, and their clients ask again anyway."""

CREATE_TIMEOUT_MS: Final = 30_000
VERSION: Final = OFFERED[ApiKey.CREATE_TOPICS].highest


class AutoCreation:
    """One creation at a time per topic. Data loop only."""

    def __init__(self, settings: BrokerSettings, admin: AdminForwarder) -> None:
        self._settings = settings
        self._admin = admin
        self._pending: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._told = ""
        self._times = 0
        """How often the topic of offsets could not be created, for the reason that was told last."""

    @property
    def enabled(self) -> bool:
        """Whether auto.create.topics.enable is set."""
        return self._settings.auto_create_topics_enable

    def outlook(self, snapshot: MetadataSnapshot) -> ErrorCode:
        """What to tell a client of a topic that `begin` is called for.

        LEADER_NOT_AVAILABLE: clients of all ages wait and ask again. INVALID_REPLICATION_FACTOR: fewer brokers live
        than default.replication.factor asks for.
        """
        few = len(snapshot.brokers) < self._settings.default_replication_factor
        return ErrorCode.INVALID_REPLICATION_FACTOR if few else ErrorCode.LEADER_NOT_AVAILABLE

    def begin(self, names: Sequence[str], snapshot: MetadataSnapshot, context: RequestContext) -> None:
        """Begin to create topics of valid names for a client, unless that is under way or cannot be done."""
        if self.outlook(snapshot) is not ErrorCode.LEADER_NOT_AVAILABLE:
            return
        new = [name for name in dict.fromkeys(names) if name not in self._pending]
        new = new[: MAX_PENDING - len(self._pending)]
        settings = self._settings
        self._start(
            [_topic(name, settings.num_partitions, settings.default_replication_factor, {}) for name in new], context
        )

    def begin_offsets_topic(self, snapshot: MetadataSnapshot, context: RequestContext) -> None:
        """Begin to create the topic that groups are kept in, whatever auto.create.topics.enable says.

        Where fewer brokers live than offsets.topic.replication.factor asks for, that is logged: clients only learn that
        there is no coordinator yet, and ask on and on.
        """
        settings = self._settings
        factor, live = settings.offsets_topic_replication_factor, len(snapshot.brokers)
        if live < factor:
            self._tell_groups_wait(
                f"offsets.topic.replication.factor={factor} needs {factor} live brokers, {live} live: start more, or "
                "lower it on all of them"
            )
        elif OFFSETS_TOPIC not in self._pending:
            configs = {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(settings.offsets_topic_segment_bytes),
            }
            self._start([_topic(OFFSETS_TOPIC, settings.offsets_topic_num_partitions, factor, configs)], context)

    def _tell_groups_wait(self, why: str) -> None:
        self._times = self._times + 1 if why == self._told else 1
        self._told = why
        if is_power_of_ten(self._times):
            logger.warning("groups wait, as %s cannot be created (%d times): %s", OFFSETS_TOPIC, self._times, why)

    def stop(self) -> None:
        """Wait for no answer any more."""
        for task in tuple(self._tasks):
            task.cancel()

    def _start(self, topics: Sequence[Message], context: RequestContext) -> None:
        if topics:
            self._pending.update(topic.name for topic in topics)
            task = asyncio.get_running_loop().create_task(self._create(topics, context))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _create(self, topics: Sequence[Message], context: RequestContext) -> None:
        names = [topic.name for topic in topics]
        body = bytes(encode_body(VERSION, CreateTopicsRequest(topics=topics, timeout_ms=CREATE_TIMEOUT_MS)))
        try:
            reply = await self._admin.forward(
                envelope(ApiKey.CREATE_TOPICS, VERSION, body, context),
                timeout_ms=CREATE_TIMEOUT_MS,
                require_local=False,
            )
        except RegencyError as error:
            self._refused(names, str(error))
            return
        except Exception:
            logger.exception("did not create %s that a client asked for", ", ".join(names))
            return
        finally:
            self._pending.difference_update(names)
        if reply.outcome.error_code != ErrorCode.NONE:
            self._refused(names, f"{ErrorCode(reply.outcome.error_code).name} {reply.outcome.message}")
            return
        for result in decode_body(ApiKey.CREATE_TOPICS, VERSION, reply.response).topics:
            if result.error_code == ErrorCode.NONE:
                logger.info("created topic %s because a client asked for it", result.name)
            elif result.error_code != ErrorCode.TOPIC_ALREADY_EXISTS:
                self._refused([result.name], f"{ErrorCode(result.error_code).name} {result.error_message}")

    def _refused(self, names: Sequence[str], why: str) -> None:
        if OFFSETS_TOPIC in names:
            self._tell_groups_wait(why)
        else:
            logger.warning("did not create %s that a client asked for: %s", ", ".join(names), why)


def _topic(name: str, partitions: int, replication_factor: int, configs: Mapping[str, str]) -> Message:
    topic_class = CreateTopicsRequest.CreatableTopic
    return topic_class(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=[],
        configs=[topic_class.CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )
