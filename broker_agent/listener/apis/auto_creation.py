"""Creates topics because a client asked for their metadata, while the client asks again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from regency.broker_agent.control.admin_forwarder import AdminForwarder, envelope
from regency.broker_agent.control.metadata_cache import MetadataSnapshot
from regency.kafka.apis import OFFERED, ApiKey
from regency.kafka.codec import CreateTopicsRequest, decode_body, encode_body
from regency.model.errors import RegencyError
from regency.model.kafka_errors import ErrorCode
from regency.model.principals import RequestContext
from regency.model.settings import BrokerSettings

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
        if new:
            self._pending.update(new)
            task = asyncio.get_running_loop().create_task(self._create(new, context))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def stop(self) -> None:
        """Wait for no answer any more."""
        for task in tuple(self._tasks):
            task.cancel()

    async def _create(self, names: list[str], context: RequestContext) -> None:
        topics = [
            CreateTopicsRequest.CreatableTopic(
                name=name,
                num_partitions=self._settings.num_partitions,
                replication_factor=self._settings.default_replication_factor,
                assignments=[],
                configs=[],
            )
            for name in names
        ]
        body = bytes(encode_body(VERSION, CreateTopicsRequest(topics=topics, timeout_ms=CREATE_TIMEOUT_MS)))
        try:
            reply = await self._admin.forward(
                envelope(ApiKey.CREATE_TOPICS, VERSION, body, context),
                timeout_ms=CREATE_TIMEOUT_MS,
                require_local=False,
            )
        except RegencyError as error:
            logger.warning("did not create %s that a client asked for: %s", ", ".join(names), error)
            return
        except Exception:
            logger.exception("did not create %s that a client asked for", ", ".join(names))
            return
        finally:
            self._pending.difference_update(names)
        if reply.outcome.error_code != ErrorCode.NONE:
            why = f"{ErrorCode(reply.outcome.error_code).name} {reply.outcome.message}"
            logger.warning("did not create %s that a client asked for: %s", ", ".join(names), why)
            return
        for result in decode_body(ApiKey.CREATE_TOPICS, VERSION, reply.response).topics:
            if result.error_code == ErrorCode.NONE:
                logger.info("created topic %s because a client asked for it", result.name)
            elif result.error_code != ErrorCode.TOPIC_ALREADY_EXISTS:
                why = ErrorCode(result.error_code).name
                logger.warning("did not create topic %s: %s %s", result.name, why, result.error_message)
