"""A cluster as ZooKeeper shows it, through one session that is opened when it is first needed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from regency.cluster.errors import ClusterTimeout
from regency.cluster.health import ClusterSnapshot, phrase, read_snapshot, why_unreadable
from regency.model.errors import RegencyError
from regency.model.ids import BrokerId, ControllerEpoch
from regency.model.znodes import decode_controller, decode_controller_epoch
from regency.model.znodes import paths as znode_paths
from regency.runtime.zookeeper import client as zk_client
from regency.runtime.zookeeper.session import ZkSession

_POLL_S = 0.1


class ClusterObserver:
    """Asks ZooKeeper about a cluster and waits for what it shall say. Thread-safe."""

    def __init__(
        self, connect: str, *, session_timeout_ms: int, digest_auth: str = "", connect_timeout_ms: int | None = None
    ) -> None:
        self._connect = connect
        self._session_timeout_ms = session_timeout_ms
        self._digest_auth = digest_auth
        self._connect_timeout_ms = connect_timeout_ms
        self._lock = threading.Lock()
        self._session: ZkSession | None = None

    def session(self) -> ZkSession:
        """The session, opened on first use. Raises ZkError."""
        with self._lock:
            if self._session is None:
                self._session = zk_client.connect(
                    self._connect,
                    session_timeout_ms=self._session_timeout_ms,
                    digest_auth=self._digest_auth,
                    name="cluster",
                    connect_timeout_ms=self._connect_timeout_ms,
                )
            return self._session

    def close(self) -> None:
        """End the session; the next question opens another. Harmless twice."""
        with self._lock:
            session, self._session = self._session, None
        if session is not None:
            session.close()

    def controller_id(self) -> BrokerId | None:
        """The broker whose controller rules, by /controller; None while none does. Raises ZkError."""
        znode = self.session().read(znode_paths.CONTROLLER)
        return decode_controller(znode.path, znode.data) if znode else None

    def controller_epoch(self) -> ControllerEpoch:
        """How many controllers have ruled; 0 before the first. Raises ZkError."""
        znode = self.session().read(znode_paths.CONTROLLER_EPOCH)
        return decode_controller_epoch(znode.path, znode.data) if znode else ControllerEpoch(0)

    def snapshot(self) -> ClusterSnapshot:
        """Brokers, controller and partitions. Raises ZkError."""
        return read_snapshot(self.session())

    def wait_controller(self, timeout_s: float) -> BrokerId:
        """Wait until a controller rules whose broker is registered. Raises ClusterTimeout after `timeout_s` seconds."""
        ruling: list[BrokerId] = []

        def look() -> list[str]:
            snapshot = self.snapshot()
            if snapshot.controller is not None and snapshot.controller in snapshot.brokers:
                ruling.append(snapshot.controller)
                return []
            return ["there is no controller whose broker is registered"]

        self.wait_for(look, timeout_s)
        return ruling[-1]

    def wait_for(self, what_is_missing: Callable[[], list[str]], timeout_s: float) -> None:
        """Ask again and again until nothing is missing. Raises ClusterTimeout with what was missing last.

        A ZooKeeper that does not answer is something missing.
        """
        deadline = time.monotonic() + timeout_s
        while left := _ask(what_is_missing):
            if time.monotonic() >= deadline:
                raise ClusterTimeout(f"Not healthy within {timeout_s:g} s: {phrase(left)}.")
            time.sleep(_POLL_S)


def _ask(what_is_missing: Callable[[], list[str]]) -> list[str]:
    try:
        return what_is_missing()
    except RegencyError as error:
        return [why_unreadable(error)]
