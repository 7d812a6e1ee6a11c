"""The model of ZooKeeper against the real server: random scripts, and what every client sees of them.

ZOOKEEPER_SCRIPTS says how many (10,000 is the whole), ZOOKEEPER_SEED and ZOOKEEPER_FIRST which.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from simulation.zookeeper.compare.real import play_all
from simulation.zookeeper.compare.script import Author, Burst, Script

from regency.cluster.zookeeper import EmbeddedZooKeeper

SCRIPTS = int(os.environ.get("ZOOKEEPER_SCRIPTS", "1000"))
SEED = int(os.environ.get("ZOOKEEPER_SEED", "1"))
FIRST = int(os.environ.get("ZOOKEEPER_FIRST", "0"))
STEPS = 25
SHORTEST_SESSION_MS = 100


class QuickZooKeeper(EmbeddedZooKeeper):
    """Expires sessions after 100 ms, and does not wait for its disk."""

    def _write_config(self) -> None:
        super()._write_config()
        file = self.directory / "zoo.cfg"
        lines = [line for line in file.read_text().splitlines() if not line.startswith(("tickTime", "minSession"))]
        lines += ["tickTime=50", f"minSessionTimeout={SHORTEST_SESSION_MS}", "forceSync=no"]
        file.write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def quick_zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuickZooKeeper]:
    with QuickZooKeeper(tmp_path_factory.mktemp("quick-zookeeper")) as server:
        yield server


def differences(server: EmbeddedZooKeeper, seed: int, first: int, count: int, *, together: int) -> list[str]:
    scripts = (Author(seed, number).write(STEPS) for number in range(first, first + count))
    return [
        f"{found}\nsteps:\n{listing(script)}\nagain: ZOOKEEPER_SEED={seed} ZOOKEEPER_FIRST={script.number}"
        " ZOOKEEPER_SCRIPTS=1 ./dev test sim -k model_and_the_real_server"
        for script, found in play_all(server.port, scripts, SHORTEST_SESSION_MS, together=together)
        if found
    ]


def listing(script: Script) -> str:
    return "\n".join(f"  {step}" for step in script.steps)


@pytest.mark.integration
@pytest.mark.timeout(900)
def test_the_model_and_the_real_server_show_every_client_the_same(quick_zookeeper):
    found = differences(quick_zookeeper, SEED, FIRST, SCRIPTS, together=100)
    assert not found, f"{len(found)} of {SCRIPTS} scripts differ; the first:\n{found[0]}"


@pytest.mark.integration
def test_played_alone_a_script_takes_the_same_zxids(quick_zookeeper):
    found = differences(quick_zookeeper, SEED + 1000, FIRST, min(SCRIPTS, 60), together=1)
    assert not found, f"{len(found)} scripts differ; the first:\n{found[0]}"


def test_a_script_is_determined_by_its_seed_and_number():
    first, again, other = Author(1, 7).write(STEPS), Author(1, 7).write(STEPS), Author(1, 8).write(STEPS)
    assert (first.steps, first.expected) == (again.steps, again.expected)
    assert first.steps != other.steps


def test_scripts_hold_every_kind_of_request_and_most_of_what_they_try_succeeds_sometimes():
    scripts = [Author(3, number).write(STEPS) for number in range(60)]
    kinds = {
        request.kind
        for script in scripts
        for step in script.steps
        if isinstance(step, Burst)
        for request in step.requests
    }
    assert kinds == {
        *("write", "write2", "multi", "read_many", "children_many", "add_watch", "remove_watches", "sync"),
        *("data", "exists", "children", "children2"),
    }
    answers = [seen for script in scripts for client in script.expected for seen in client]
    assert {seen[1] for seen in answers if seen[0] == "event"} == {1, 2, 3, 4}
    errors = {seen[1] for seen in answers if seen[0] == "write"}
    assert errors >= {0, -8, -101, -103, -108, -110, -111}
    done = [seen for seen in answers if seen[0] == "multi" and not seen[3][0]]
    assert len(done) * 5 > sum(seen[0] == "multi" for seen in answers)
