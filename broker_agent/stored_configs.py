"""Settings as they stand in ZooKeeper at the moment somebody asks for them, whether or not this agent uses them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from regency.broker_agent.ports import Worker
from regency.model import znode_paths, znodes
from regency.model.errors import ZnodeMalformed
from regency.runtime.zk_session import ZkSession


class StoredConfigs:
    """Reads settings below /config. Data loop only; ZooKeeper is asked on `worker`."""

    def __init__(self, session: ZkSession, worker: Worker) -> None:
        self._session = session
        self._worker = worker

    async def read(self, entities: Sequence[str]) -> dict[str, Mapping[str, str] | None]:
        """Settings of these, such as `topics/t` or `brokers/1`: what was written before is seen.

        None where nobody can read them; those for which nothing stands there are left out. Raises ZkError.
        """
        loop = asyncio.get_running_loop()
        read: asyncio.Future[dict[str, Mapping[str, str] | None]] = loop.create_future()

        def done(outcome: dict[str, Mapping[str, str] | None] | BaseException) -> None:
            if read.done():
                return
            if isinstance(outcome, BaseException):
                read.set_exception(outcome)
            else:
                read.set_result(outcome)

        self._worker.submit(lambda: self._read(entities), done)
        return await read

    def _read(self, entities: Sequence[str]) -> dict[str, Mapping[str, str] | None]:
        self._session.sync(znode_paths.CONFIG)
        found = self._session.read_many([znode_paths.config_of(entity) for entity in entities])
        configs: dict[str, Mapping[str, str] | None] = {}
        for entity, znode in zip(entities, found, strict=True):
            if znode is None:
                continue
            try:
                configs[entity] = znodes.decode_config(znode.path, znode.data)
            except ZnodeMalformed:
                configs[entity] = None
        return configs
