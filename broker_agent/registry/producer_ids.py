"""Producer ids for idempotent producers: blocks of 1000 taken by compare-and-set, handed out one by one.

Source: KIP-730's block format in /latest_producer_id_block; blocks are taken by the agent itself, as Kafka did before
3.0, so that producers start while no controller rules. An id is never handed out twice: a block whose write was not
acknowledged is left unused.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import ClassVar

from regency.broker_agent.ports import Worker
from regency.model import znodes
from regency.model.errors import RegencyError, ZnodeMalformed
from regency.model.ids import BrokerId, ProducerId
from regency.model.kafka_errors import ErrorCode
from regency.model.znodes import paths as znode_paths
from regency.runtime.zookeeper.session import Create, Op, SetData, ZkError, ZkSession

logger = logging.getLogger(__name__)

BLOCK_SIZE = 1000
LARGEST_ID = 2**63 - 1
LOW_IDS = BLOCK_SIZE // 10
"""Ids left when the next block is taken."""

ATTEMPTS = 10
"""How often a block is tried for when other agents take one at the same moment."""


class ProducerIdsUnavailable(RegencyError):
    """No block could be taken from ZooKeeper now. The client tries again."""

    code: ClassVar[str] = "producer_ids_unavailable"
    retriable: ClassVar[bool] = True
    error: ClassVar[ErrorCode] = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class ProducerIdsUnreadable(ProducerIdsUnavailable):
    """/latest_producer_id_block holds no block, so that it is not known which ids are taken."""

    code: ClassVar[str] = "producer_ids_unreadable"


class ProducerIdsExhausted(RegencyError):
    """All 2^63 ids are taken, or the znode says so."""

    code: ClassVar[str] = "producer_ids_exhausted"


class ProducerIds:
    """Hands out producer ids. Data loop only; ZooKeeper is asked on `worker`, once per block and ahead of need.

    So new producers start while ZooKeeper is away, as long as the blocks last (KIP-730: ask at 90 percent).
    """

    def __init__(self, broker: BrokerId, session: ZkSession, worker: Worker) -> None:
        self._broker = broker
        self._session = session
        self._worker = worker
        self._blocks: deque[range] = deque()
        self._taking: asyncio.Future[None] | None = None
        self._told = ""

    def prefetch(self) -> None:
        """Take a block soon if few ids are left; a failure is tried again when an id is asked for."""
        if sum(map(len, self._blocks)) <= LOW_IDS:
            self._take_block()

    async def allocate(self) -> ProducerId:
        """An id that no other producer ever gets. Raises ProducerIdsUnavailable (retriable) or ProducerIdsExhausted."""
        while not self._blocks:
            await asyncio.shield(self._take_block())
        block = self._blocks.popleft()
        if len(block) > 1:
            self._blocks.appendleft(block[1:])
        self.prefetch()
        return ProducerId(block[0])

    def _take_block(self) -> asyncio.Future[None]:
        if self._taking is not None:
            return self._taking
        taking: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._taking = taking

        def done(outcome: znodes.ProducerIdBlock | BaseException) -> None:
            self._taking = None
            if isinstance(outcome, BaseException):
                self._tell(outcome)
                taking.set_exception(outcome)
                taking.exception()  # no request may be waiting: not an error of its own
                return
            self._blocks.append(range(outcome.first, outcome.last + 1))
            taking.set_result(None)

        self._worker.submit(lambda: take_block(self._session, self._broker), done)
        return taking

    def _tell(self, error: BaseException) -> None:
        """Log once what does not pass by itself: clients only learn that they may try again."""
        if isinstance(error, (ProducerIdsUnreadable, ProducerIdsExhausted)) and str(error) != self._told:
            self._told = str(error)
            logger.error("%s", error)


def take_block(session: ZkSession, broker: BrokerId) -> znodes.ProducerIdBlock:
    """Take the next block of ids; blocks on ZooKeeper.

    Raises ProducerIdsUnavailable, ProducerIdsUnreadable (one of them), ProducerIdsExhausted.
    """
    try:
        for _ in range(ATTEMPTS):
            block = _try_block(session, broker)
            if block is not None:
                logger.info("took producer ids %d to %d", block.first, block.last)
                return block
    except ZnodeMalformed as error:
        raise ProducerIdsUnreadable(
            f"No producer id could be taken: {error}",
            hint="Write a block there with a block_end beyond every id in use; new idempotent producers wait for it.",
        ) from error
    except ZkError as error:
        raise ProducerIdsUnavailable(f"No producer id could be taken: {error}", hint="Try again.") from error
    raise ProducerIdsUnavailable(f"Other brokers took {ATTEMPTS} blocks of producer ids meanwhile.", hint="Try again.")


def _try_block(session: ZkSession, broker: BrokerId) -> znodes.ProducerIdBlock | None:
    held = session.read(znode_paths.PRODUCER_IDS)
    newest = znodes.decode_producer_id_block(held.path, held.data) if held is not None else None
    first = 0 if newest is None else newest.last + 1
    last = first + BLOCK_SIZE - 1
    if last > LARGEST_ID:
        raise ProducerIdsExhausted(f"{znode_paths.PRODUCER_IDS} says that ids up to {first - 1} are taken.")
    block = znodes.ProducerIdBlock(broker, ProducerId(first), ProducerId(last))
    data = znodes.encode_producer_id_block(block)
    write: Op
    if held is None:
        write = Create(znode_paths.PRODUCER_IDS, data)
    else:
        write = SetData(znode_paths.PRODUCER_IDS, data, held.stat.version)
    written = session.multi([write]).ok
    return block if written else None
