"""kafka-python's integration tests, from its source distribution."""

from __future__ import annotations

import shutil
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from compat.suite import CannotRun, Case, Outcome, Suite, Target, done

VERSION: Final = version("kafka-python")
SERVICE: Final = '''
class ExternalService:
    """A broker that runs already: what `test/service.py`, which the distribution lacks, says of one."""

    def __init__(self, host, port):
        self.host, self.port = host, port

    def open(self):
        pass

    def close(self):
        pass


class SpawnedService:
    """Never started here: KAFKA_URI names a broker that runs."""
'''


def _fetch(suite: Suite) -> Path:
    source = suite.directory / f"kafka_python-{VERSION}"

    def make() -> None:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-build-isolation"]
        command += ["--no-binary", ":all:", f"kafka-python=={VERSION}", "--dest", str(suite.directory)]
        suite.call(command, within_s=300, must=True)
        shutil.rmtree(source, ignore_errors=True)
        with tarfile.open(suite.directory / f"kafka_python-{VERSION}.tar.gz") as archive:
            archive.extractall(suite.directory, filter="data")
        (source / "test" / "__init__.py").touch()
        (source / "test" / "service.py").write_text(SERVICE)

    done(suite.directory / f"fetched-{VERSION}", make)
    return source


def run(suite: Suite, target: Target) -> list[Case]:
    """Run them by pytest; its report in JUnit's form says how each ended."""
    source = _fetch(suite)
    report = suite.directory / "report.xml"
    report.unlink(missing_ok=True)
    chosen = [f"--deselect=test/integration/{name}" for name in suite.left_out]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", "."]
    command += ["--tb=native", "--timeout=180", f"--junitxml={report}", *chosen, "test/integration"]
    env = {
        "KAFKA_VERSION": "3.9.0",
        "KAFKA_URI": f"kafka://{target.bootstrap_servers.split(',')[0]}",
        "KAFKA_ROOT": str(source),  # looked for, and not used where the broker runs already
        "PYTHONPATH": str(source),
    }
    suite.call(command, cwd=source, env=env, within_s=1200)
    if not report.exists():
        raise CannotRun(f"pytest wrote no report, see {suite.log}")
    return [_case(each) for each in ET.parse(report).iter("testcase")]


def _case(found: ET.Element) -> Case:
    name = f"{found.get('classname', '').rsplit('.', 1)[-1]}::{found.get('name')}"
    seconds = round(float(found.get("time", 0)), 1)
    for kind, outcome in (("skipped", Outcome.LEFT_OUT), ("failure", Outcome.FAILED), ("error", Outcome.FAILED)):
        if (why := found.find(kind)) is not None:
            return Case(name, outcome, seconds, why.get("message", "").splitlines()[0][:200])
    return Case(name, Outcome.PASSED, seconds)


SUITE: Final = Suite(
    name="kafka-python",
    what=f"kafka-python {VERSION}, test/integration: groups, offsets, administration",
    programs=(),
    run=run,
    brokers=1,
    settings={
        "num.partitions": 4,
        "auto.create.topics.enable": "true",
        "group.min.session.timeout.ms": 1000,  # its test of groups asks for sessions of 3 s
        "group.initial.rebalance.delay.ms": 0,
    },
    left_out={
        "test_admin_integration.py::test_create_describe_delete_acls": "no authorizer is offered",
        "test_admin_integration.py::test_create_partitions": "it assigns replicas to broker 0; brokers here begin at 1",
        "test_admin_integration.py::test_describe_configs_broker_resource_returns_configs": (
            "advertised.listeners cannot be changed while a broker runs, and it demands that it says so"
        ),
        "test_producer_integration.py::test_transactional_producer_messages": "transactions are not offered",
        "test_producer_integration.py::test_transactional_producer_offsets": "transactions are not offered",
        "test_ssl_integration.py": "it starts a Kafka of its own",
    },
)
