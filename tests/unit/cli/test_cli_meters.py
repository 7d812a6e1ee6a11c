"""What brokers tell over HTTP, from played endpoints: slow ones, older ones, and those that are none."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from regency.cli.asking import meters
from regency.cli.asking.meters import BYTES_IN, FOLLOWER_LAG, NO_SERIES, Meters, get, parsed
from regency.cli.top.figures import FigureAsker
from regency.clients.nodes import Node
from regency.model.ids import BrokerId

TEXT = f"""# TYPE {BYTES_IN} counter
{BYTES_IN} 70.0
{BYTES_IN}{{topic="flights"}} 7.0
# TYPE {FOLLOWER_LAG} gauge
{FOLLOWER_LAG}{{broker_id="2"}} 40.0
# TYPE other gauge
other 1
"""
OK = b"HTTP/1.0 200 OK\r\n\r\n"


class Endpoint:
    """Answers every request with the same pieces, some time apart."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.apart_s = 0.0
        self.asked: list[str] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                link, _ = self._listening.accept()
            except OSError:
                return
            with link:
                self.asked.append(link.recv(4096).decode().split(" ")[1])
                try:
                    for piece in self.pieces:
                        link.sendall(piece)
                        time.sleep(self.apart_s)
                except OSError:
                    pass

    def close(self) -> None:
        self._listening.close()


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    made = Endpoint()
    monkeypatch.setattr(meters, "_served_at", lambda _: ("127.0.0.1", made.port))
    yield made
    made.close()


def node(broker: int) -> Node:
    return Node(BrokerId(broker), "127.0.0.1", 1)


def test_an_agent_is_asked_for_some_names_and_topics_only(endpoint):
    endpoint.pieces = [OK, TEXT.encode()]
    found = Meters().read([node(1)], [BYTES_IN, FOLLOWER_LAG], ["flights"])
    assert found == {1: {(BYTES_IN, ""): 70.0, (BYTES_IN, "flights"): 7.0, (FOLLOWER_LAG, "2"): 40.0}}
    query = f"name%5B%5D={BYTES_IN}&name%5B%5D={FOLLOWER_LAG}&topic%5B%5D=&topic%5B%5D=flights"
    assert endpoint.asked == [f"/metrics?{query}"]


def test_a_gauge_without_series_is_known_and_a_metric_that_is_not_there_is_not():
    assert parsed(f"# TYPE {FOLLOWER_LAG} gauge\n", [FOLLOWER_LAG]) == {(FOLLOWER_LAG, NO_SERIES): 0.0}
    assert parsed("# TYPE other gauge\n", [FOLLOWER_LAG]) == {}
    assert parsed('e{request="Produce",error="NONE"} 2\n', ["e"]) == {("e", "NONE,Produce"): 2.0}


@pytest.mark.parametrize(
    ("pieces", "apart_s"),
    [
        ([b"HTTP/1.0 404 Not Found\r\n\r\nno"], 0.0),
        ([b"SSH-2.0-OpenSSH_9.6\r\n"], 0.0),
        ([OK, b"\xff\xfe"], 0.0),
        ([OK, b'what{is= "this'], 0.0),
        ([OK, *[b"#\n"] * 100], 0.1),
        ([], 0.0),
    ],
    ids=["not there", "another protocol", "no text", "no metrics", "endless", "nothing"],
)
def test_what_is_no_answer_gives_no_figures_and_takes_no_longer_than_the_limit(endpoint, monkeypatch, pieces, apart_s):
    monkeypatch.setattr(meters, "TIMEOUT_S", 0.5)
    endpoint.pieces, endpoint.apart_s = pieces, apart_s
    began = time.monotonic()
    assert Meters().read([node(1)], [BYTES_IN]) == {}
    assert time.monotonic() - began < 5


def test_a_frozen_broker_holds_up_no_other(endpoint, monkeypatch):
    endpoint.pieces = [OK, TEXT.encode()]
    with socket.create_server(("127.0.0.1", 0)) as frozen:
        places = {1: ("127.0.0.1", endpoint.port), 2: frozen.getsockname(), 3: ("127.0.0.1", -1)}
        monkeypatch.setattr(meters, "_served_at", lambda asked: places[asked.id])
        monkeypatch.setattr(meters, "TIMEOUT_S", 0.5)
        began = time.monotonic()
        assert set(Meters().read([node(1), node(2), node(3)], [BYTES_IN])) == {1}
        assert time.monotonic() - began < 5
        with pytest.raises(OSError, match="timed out"):
            get(*frozen.getsockname(), "/", timeout_s=0.1)


def test_the_figures_of_brokers_and_of_one_that_is_older(endpoint, monkeypatch):
    monkeypatch.setattr("regency.cli.top.figures.disks_used", lambda _: {1: 0.5})
    endpoint.pieces = [OK, TEXT.encode()]
    asker = FigureAsker()
    found = asker.look([node(1)], 10, "flights")[1]
    assert (found.bytes_in, found.bytes_out, found.topic_in, found.lags) == (70.0, None, 7.0, {2: 40})
    assert (found.topic_out, found.disk_used) == (0.0, 0.5)
    endpoint.pieces = [OK, f"{BYTES_IN} 70.0\n".encode()]
    assert asker.look([node(1)], 10, "")[1].lags is None, "unknown, not none"
    endpoint.asked.clear()
    for _ in range(3):
        asker.look([node(1)], 10**6, "")
    assert not any(FOLLOWER_LAG in each for each in endpoint.asked), "a cluster that is large is asked rarely"
