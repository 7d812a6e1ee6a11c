"""Every command that prints JSON is run against one lab, and what it prints is held against its schema."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from regency.cli.main import cli
from regency.cli.schemas import LINES, OUTPUTS, output_type
from regency.cluster.status import end_cluster

pytestmark = pytest.mark.integration

ON_SPARK = {each for each in OUTPUTS if each.startswith("pipeline ")}
"""Run, and held against their schemas, in tests/spark."""
SCRIPT = """
up --detach --brokers 3 --log-dirs 2 --set offsets.topic.replication.factor=2
cluster health --wait
status
topics create t --partitions 2 --replication-factor 2
topics create solo
topics alter t --partitions 3
topics list
produce t
consume t --from-beginning --until-end
groups reset-offsets g --topic t --to-earliest --create --execute
groups list
groups describe
groups offsets g
groups delete g --yes
load u --seconds 1 --rate 50 --history h.jsonl
judge h.jsonl
topics describe
configs set topic t retention.ms=3600000
configs get topic t --all
configs unset topic t retention.ms
leaders elect --all
log dirs --topic t
log dump {log}
log move t 0 --broker {holder} --to {other}
brokers list
brokers describe 2
brokers disk
partitions plan --topics solo --replication-factor 2 --out plan.json
partitions execute plan.json
partitions verify plan.json
partitions list
partitions cancel plan.json
topics set-rf solo 3
topics set-rf solo 2
explain t-0
history -n 5
doctor
verify replicas t
top --once
controller status
controller resign
lab pause 1
lab resume 1
lab stop 1
lab start 1
lab restart 1
logs -n 20
cluster health --wait
topics truncate t --to-end --yes
topics delete u --yes
brokers drain 3
brokers shutdown 3
lab kill 3
brokers forget 3
docs
docs tutorial
deploy-files deployed
down
demo --flights 1000 --dir demonstrated
"""


def not_of_its_schema(command: str, printed: str) -> list[str]:
    """Documents that are not what the schema says, field by field; none printed at all is one."""
    documents = printed.splitlines() if command in LINES else [printed]
    kind = output_type(command)
    wrong = []
    for document in documents or ["nothing"]:
        try:
            same = msgspec.json.encode(msgspec.json.decode(document, type=kind))
        except msgspec.DecodeError as error:
            wrong.append(f"{error}: {document}")
        else:
            wrong += [] if json.loads(same) == json.loads(document) else [document]
    return wrong


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REGENCY_BOOTSTRAP_SERVERS", raising=False)
    yield tmp_path / ".run"
    end_cluster(tmp_path / ".run", grace_s=0)


def test_every_output_is_of_its_schema(lab: Path) -> None:
    done: set[str] = set()
    places: dict[str, str] = {}
    for line in SCRIPT.strip().splitlines():
        words = line.format(**places).split()
        command = max((each for each in OUTPUTS if words[: len(each.split())] == each.split()), key=len)
        given = "a\nb\n" if command == "produce" else None
        result = CliRunner().invoke(cli, [*words, "-o", "json"], input=given, prog_name="regency")
        assert result.exit_code == 0, (line, result.output, result.exception)
        assert not_of_its_schema(command, result.stdout) == [], line
        done.add(command)
        if command == "log dirs":
            rows = json.loads(result.stdout)
            [row] = [each for each in rows if any(log["partition"] == 0 for log in each["logs"])][:1]
            [other] = [
                each["directory"]
                for each in rows
                if each["broker"] == row["broker"] and each["directory"] != row["directory"]
            ]
            places = {"log": f"{row['directory']}/t-0", "holder": str(row["broker"]), "other": other}
    assert done == set(OUTPUTS) - ON_SPARK


def test_a_document_of_another_shape_is_noticed() -> None:
    [row] = json.loads(CliRunner().invoke(cli, ["docs", "tutorial", "-o", "json"], prog_name="regency").stdout)
    assert not_of_its_schema("docs", json.dumps([row])) == []
    for wrong in ([{**row, "name": "tutorial"}], [{**row, "title": 1}], row, [{"page": row["page"]}]):
        assert not_of_its_schema("docs", json.dumps(wrong)), wrong
    assert not_of_its_schema("docs", "") and not_of_its_schema("logs", "")
