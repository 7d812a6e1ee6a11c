"""Settings of topics as this agent knows them: read from /config, kept fresh through /config/changes.

A topic's own settings stand over the broker's, these over those of all brokers, these over server.properties (KIP-226,
as far as logs are concerned). A topic's are read before its first log is created, and again when a notification names
it; after every reconnect all that are known are read again. What cannot be read is logged and has no effect.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import msgspec

from regency.broker_agent.ports import Worker
from regency.model import znodes
from regency.model.crash_points import crash_point
from regency.model.errors import RegencyError, ZnodeMalformed
from regency.model.ids import BrokerId
from regency.model.settings.dynamic import ThrottleRates, broker_log_config, broker_throttle_rates, without_effect
from regency.model.settings.log_config import LogConfig, applicable_log_config
from regency.model.znodes import paths as znode_paths
from regency.runtime.zookeeper.session import WatchEvent, WatchEventType, WatchMode, ZkConnectionLost, ZkSession, Znode

logger = logging.getLogger(__name__)

RETRY_MS = 1000
_TOLD_AT_ONCE = 500
"""Topics whose new settings take effect in one step of the data loop."""
_SWEPT_FROM = 1_000
"""Topics of which so many are known are swept; then when there are twice as many as were left."""
TOPICS_PREFIX = "topics/"
BROKERS_PREFIX = "brokers/"


class _Held(msgspec.Struct, frozen=True):
    mzxid: int
    overrides: Mapping[str, str]
    config: LogConfig


class TopicConfigs:
    """What logs are configured with. `of` belongs to the data loop; `watch` and `load` block, on other threads.

    `changed` is called on the data loop with topics and their new settings, some at a time: a setting of all brokers
    may change those of ten thousand. `hosted` is called there and tells which topics have logs.
    """

    def __init__(
        self,
        broker: BrokerId,
        base: LogConfig,
        session: ZkSession,
        worker: Worker,
        post: Callable[[Callable[[], None]], None],
        later: Callable[[int, Callable[[], None]], object],
        changed: Callable[[Mapping[str, LogConfig]], None],
        hosted: Callable[[], frozenset[str]],
        static_rates: ThrottleRates = ThrottleRates(),  # noqa: B008 - a value
    ) -> None:
        self._broker_paths = (znode_paths.DEFAULT_BROKER_CONFIG, znode_paths.broker_config(broker))
        self._static = base
        self._base = base
        self._session = session
        self._worker = worker
        self._post = post
        self._later = later
        self._changed = changed
        self._hosted = hosted
        self._static_rates = static_rates
        self._rates = static_rates
        self.on_throttles: Callable[[], None] = _nobody
        """Called on the data loop when these rates or lists of throttled replicas may have changed."""
        self._lock = threading.Lock()
        self._reading = threading.Lock()
        """Held while something is read and kept: an older read never comes after a newer one."""
        self._held: dict[str, _Held] = {}
        self._sweep_above = _SWEPT_FROM
        self._loads = 0
        self._changes_began = 0
        """zxid at which /config/changes was created: its numbers begin again with it."""
        self._seen_notification = ""
        self._busy = False
        self._again = False
        self._everything = False
        self._vain: dict[str, list[str]] = {}
        """What was told of topics whose settings ask for something that is not done."""

    def of(self, topic: str) -> LogConfig:
        """Settings of a topic: the broker's where the topic has none or they were not read."""
        held = self._held.get(topic)
        return held.config if held is not None else self._base

    def rates(self) -> ThrottleRates:
        """How fast this broker may replicate what is throttled, and copy between its log directories."""
        return self._rates

    def watch(self) -> None:
        """Follow /config/changes from now on, and read the broker's own settings; before anything is loaded. Blocks.

        Raises ZkError.
        """
        self._session.watch(znode_paths.CONFIG_CHANGES, WatchMode.PERSISTENT_RECURSIVE, self._on_event)
        self._changes_began = self._read_changes_began()
        self._seen_notification = max(self._notifications(), default="")
        self._read_base()

    def load(self, topics: Iterable[str]) -> None:
        """Read the settings of topics, whether or not they are known; blocks. Raises ZkError.

        Logs of known topics go by what is found from then on: the notification of it may come when it is no news.
        A topic that was deleted and made again has new settings without any: a server that lags must not answer.
        """
        wanted = list(topics)
        if not wanted:
            return
        if not self._session.connected:  # where `sync` would wait
            raise ZkConnectionLost("There is no contact with ZooKeeper to read settings of topics through.")
        self._session.sync(znode_paths.CONFIG_CHANGES)
        known = {topic for topic in wanted if topic in self._held}
        with self._lock:
            self._loads += 1
        if len(self._held) > self._sweep_above:
            self._post(partial(self._sweep, self._loads, frozenset(wanted)))
        different = [topic for topic in self._read(wanted) if topic in known]
        if different:
            self._post(lambda: self._tell(different))

    def _sweep(self, load: int, wanted: frozenset[str]) -> None:
        """Forget topics that have no log here: deleted, or moved away. Those `wanted` are about to get one.

        Not if there has been another load since: what it wanted is about to get logs too.
        """
        kept = self._hosted() | wanted
        with self._lock:
            if load != self._loads:
                return
            for topic in [topic for topic in self._held if topic not in kept]:
                del self._held[topic]
                self._vain.pop(topic, None)
            self._sweep_above = max(_SWEPT_FROM, 2 * len(self._held))

    def _read(self, topics: Sequence[str]) -> list[str]:
        """Read and keep; the topics whose settings are not what they were."""
        with self._reading:
            return self._read_and_keep(topics)

    def _read_and_keep(self, topics: Sequence[str]) -> list[str]:
        znode_of = self._session.read_many([znode_paths.topic_config(topic) for topic in topics])
        different: list[str] = []
        with self._lock:
            for topic, znode in zip(topics, znode_of, strict=True):
                before = self._held.get(topic)
                mzxid = znode.stat.mzxid if znode is not None else 0
                if before is not None and 0 < mzxid < before.mzxid:
                    continue
                overrides = _decode(znode)
                held = _Held(mzxid, overrides, _over(self._base, overrides, f"topic {topic}"))
                self._held[topic] = held
                self._tell_what_is_vain(topic, overrides)
                if before is None or before.config != held.config:
                    different.append(topic)
        return different

    def _tell_what_is_vain(self, topic: str, overrides: Mapping[str, str]) -> None:
        """Say once what a topic's settings ask for and is not done."""
        vain = without_effect(overrides)
        if vain != self._vain.get(topic, []):
            for each in vain:
                logger.warning("topic %s has settings that are not acted on: %s", topic, each)
        if vain:
            self._vain[topic] = vain
        else:
            self._vain.pop(topic, None)

    def _read_base(self) -> list[str]:
        """Read the settings of brokers; the topics whose settings are not what they were."""
        with self._reading:
            return self._read_base_and_keep()

    def _read_base_and_keep(self) -> list[str]:
        layers = [_decode(znode) for znode in self._session.read_many(self._broker_paths)]
        base, problems = broker_log_config(self._static, *layers)
        rates, more = broker_throttle_rates(self._static_rates, *layers)
        for problem in (*problems, *more):
            logger.warning("a setting of this broker is ignored: %s", problem)
        if rates != self._rates:
            logger.info(
                "throttled replicas that are not in sync: at most %d bytes/s sent, at most %d bytes/s fetched; "
                "between log directories: at most %d bytes/s copied",
                rates.leader,
                rates.follower,
                rates.moves,
            )
            self._rates = rates
            self._post(self._tell_throttles)
        different: list[str] = []
        with self._lock:
            if base == self._base:
                return []
            self._base = base
            for topic, held in self._held.items():
                config = _over(base, held.overrides, f"topic {topic}")
                if config != held.config:
                    self._held[topic] = msgspec.structs.replace(held, config=config)
                    different.append(topic)
        return different

    def _on_event(self, event: WatchEvent) -> None:
        everything = event.type is WatchEventType.LOOK_AGAIN
        if event.type is not WatchEventType.DELETED:
            self._post(lambda: self._look(everything=everything))

    def _look(self, *, everything: bool) -> None:
        self._everything = self._everything or everything
        if self._busy:
            self._again = True
            return
        self._busy = True
        whole, self._everything = self._everything, False
        self._worker.submit(lambda: self._refresh(everything=whole), lambda outcome: self._refreshed(outcome, whole))

    def _refresh(self, *, everything: bool) -> list[str]:
        began = self._read_changes_began()
        seen = self._seen_notification if began == self._changes_began else ""
        everything = everything or began != self._changes_began
        fresh = [name for name in self._notifications() if name > seen]
        named = self._named([f"{znode_paths.CONFIG_CHANGES}/{name}" for name in fresh])
        brokers = everything or any(entity.startswith(BROKERS_PREFIX) for entity in named)
        different = self._read_base() if brokers else []
        topics = list(self._held) if everything else [entity.removeprefix(TOPICS_PREFIX) for entity in named]
        different += self._read([topic for topic in topics if topic in self._held])
        crash_point("agent.configs.before_seen")
        self._changes_began = began
        self._seen_notification = fresh[-1] if fresh else seen
        return sorted(set(different))

    def _read_changes_began(self) -> int:
        znode = self._session.read(znode_paths.CONFIG_CHANGES)
        return 0 if znode is None else znode.stat.czxid

    def _notifications(self) -> list[str]:
        """Names of the notifications there are, in order; what has another name is none."""
        children = self._session.children(znode_paths.CONFIG_CHANGES)
        prefix = znode_paths.config_change_prefix().rpartition("/")[2]
        return [name for name in (children.names if children else ()) if name.startswith(prefix)]

    def _named(self, notifications: Sequence[str]) -> list[str]:
        entities: dict[str, None] = {}
        for znode in self._session.read_many(notifications):
            if znode is None:
                continue
            try:
                entities[znodes.decode_config_change(znode.path, znode.data)] = None
            except ZnodeMalformed as error:
                logger.warning("a notification of changed settings is ignored: %s", error)
        return list(entities)

    def _refreshed(self, outcome: list[str] | BaseException, everything: bool) -> None:
        self._busy = False
        if isinstance(outcome, RegencyError):
            logger.info("changed settings cannot be read yet: %s", outcome)
            self._everything = self._everything or everything
            self._later(RETRY_MS, lambda: self._look(everything=False))
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            self._tell(outcome)
        if self._again:
            self._again = False
            self._look(everything=False)

    def _tell(self, topics: Sequence[str]) -> None:
        """Tell of some, as their settings are by now, and of the rest in a later step."""
        some, rest = topics[:_TOLD_AT_ONCE], topics[_TOLD_AT_ONCE:]
        for topic in some:
            logger.info("settings of topic %s changed", topic)
        if some:
            self._changed({topic: self.of(topic) for topic in some})
        if rest:
            self._post(lambda: self._tell(rest))
        elif some:
            self._tell_throttles()

    def _tell_throttles(self) -> None:
        self.on_throttles()


def _nobody() -> None:
    pass


def _decode(znode: Znode | None) -> Mapping[str, str]:
    if znode is None or not znode.data:
        return {}
    try:
        return znodes.decode_config(znode.path, znode.data)
    except ZnodeMalformed as error:
        logger.warning("stored settings are ignored: %s", error)
        return {}


def _over(base: LogConfig, overrides: Mapping[str, str], whose: str) -> LogConfig:
    config, problems = applicable_log_config(base, overrides)
    for problem in problems:
        logger.warning("a setting of %s is ignored: %s", whose, problem)
    return config


class StoredConfigs:
    """Reads settings below /config. Data loop only; ZooKeeper is asked on `worker`."""

    def __init__(self, session: ZkSession, worker: Worker) -> None:
        self._session = session
        self._worker = worker

    async def read(self, entities: Sequence[str]) -> dict[str, Mapping[str, str] | None]:
        """Settings of these, such as `topics/t` or `brokers/1`: what was written before is seen.

        None where they cannot be read; those for which nothing stands there are left out. Raises ZkError.
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
