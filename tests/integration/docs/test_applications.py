"""docs/use/applications.md runs as it stands: programs in one interpreter, commands as they are typed."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from regency.cluster.cluster import Cluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

PAGE = Path(__file__).parents[3] / "docs" / "use" / "applications.md"
PROGRAMS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
COMMAND_S = 90


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    settings = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "6"}
    with Cluster(brokers=3, settings=settings) as made:
        made.wait_healthy(60)
        made.create_topic("flights", partitions=6, replication_factor=3)
        yield made


@pytest.fixture(scope="module")
def blocks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("document_blocks_of_use", Path(__file__).with_name("blocks.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_programs_run_then_commands_as_they_are_typed(cluster: Cluster, blocks: ModuleType, tmp_path: Path) -> None:
    assert len(PROGRAMS) == 3
    names: dict[str, Any] = {"servers": cluster.bootstrap_servers}
    for program in PROGRAMS:
        exec(compile(program, str(PAGE), "exec"), names)
    assert names["seen"] == 1000

    commands = [each for block in blocks.commands_of(PAGE) for each in block]
    assert len(commands) > 15
    bin_of_this = str(Path(sys.executable).parent)
    environment = {
        **os.environ,
        "PATH": f"{bin_of_this}{os.pathsep}{os.environ['PATH']}",
        "REGENCY_BOOTSTRAP_SERVERS": cluster.bootstrap_servers,
    }
    for command in commands:
        assert command.scenario == "groups", command.where
        done = subprocess.run(
            command.text,
            shell=True,
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
        told = f"{command.where}: {command.text}\n{done.stdout}{done.stderr}"
        assert done.returncode == command.status, told
        assert "Traceback" not in done.stderr, told
