"""Alert rules and scrape configuration: what each says, that each is tried by promtool, that its metrics exist."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from regency.runtime.metrics.table import ALL_METRICS

DEPLOY = Path(__file__).resolve().parents[3] / "deploy" / "prometheus"
TESTS = sorted((DEPLOY / "tests").glob("*.yml"))
GROUPS = yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"]
RULES: dict[str, dict[str, Any]] = {rule["alert"]: rule for group in GROUPS for rule in group["rules"]}
OF_PROMETHEUS = {"up"}

each_rule = pytest.mark.parametrize("alert", RULES)


@each_rule
def test_an_alert_says_how_bad_it_is_what_it_means_and_where_to_read_on(alert: str) -> None:
    rule = RULES[alert]
    assert rule["labels"]["severity"] in {"critical", "warning"}
    notes = rule["annotations"]
    assert set(notes) == {"summary", "description", "runbook_url"}
    assert re.fullmatch(rf"docs/operate/runbook-\w+\.md#{alert.lower()}", notes["runbook_url"])
    assert len(notes["summary"]) <= 120
    assert notes["description"].endswith(".")


@each_rule
def test_what_a_text_says_of_labels_the_expression_keeps(alert: str) -> None:
    rule = RULES[alert]
    said = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
    for kept in re.findall(r"\bby \(([^)]*)\)", rule["expr"]):
        assert said <= set(re.split(r",\s*", kept)), rule["expr"]


@each_rule
def test_an_alert_asks_for_metrics_that_there_are(alert: str) -> None:
    known = {sample for metric in ALL_METRICS for sample in metric.samples} | OF_PROMETHEUS
    asked = set(re.findall(r"\b(?:kafka_[a-z]+_\w+|regency_\w+|up(?=\{))", RULES[alert]["expr"])) - {"kafka_cluster"}
    assert asked
    assert asked <= known


def test_the_documents_table_of_alerts_is_this_one() -> None:
    text = (DEPLOY.parents[1] / "docs" / "operate" / "monitoring.md").read_text()
    told = re.findall(r"^\| ((?:Kafka|Regency)\w+) \| (\w+) \| (at once|\d+ min) \| ", text, flags=re.MULTILINE)
    rules = [
        (alert, rule["labels"]["severity"], rule["for"].replace("m", " min") if "for" in rule else "at once")
        for alert, rule in RULES.items()
    ]
    assert told == rules


def test_every_alert_is_tried_to_fire_for_what_is_bad_and_not_to_fire_before_or_for_what_is_good() -> None:
    fired: dict[str, str] = {}
    silent: set[str] = set()
    series: dict[str, str] = {}
    for path in TESTS:
        for test in yaml.safe_load(path.read_text())["tests"]:
            for tried in test["promql_expr_test"]:
                (name,) = re.findall(r'alertname="(\w+)"', tried["expr"])
                if tried["exp_samples"]:
                    fired[name] = str(tried["exp_samples"])
                    series[name] = series.get(name, "") + str(test["input_series"])
                else:
                    silent.add(name)
    assert set(fired) == set(RULES)
    assert silent == set(RULES)
    for name, text in fired.items():
        assert "good" not in text
        assert "good" in series[name] or 'broker_id="2"' in series[name], f"{name}: nothing in its test is well"


@pytest.mark.timeout(30)  # a program of its own, that plays hours of every rule
def test_promtool_agrees_with_the_rules_their_tests_and_the_configuration(prometheus_tools: Path) -> None:
    promtool = str(prometheus_tools / "promtool")
    for command in (
        ["check", "rules", str(DEPLOY / "alerts.yml")],
        ["check", "config", str(DEPLOY / "prometheus.yml")],
        ["test", "rules", *map(str, TESTS)],
    ):
        done = subprocess.run([promtool, *command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_two_processes_of_a_broker_are_one_instance_with_the_labels_that_dashboards_go_by(
    prometheus_tools: Path, tmp_path: Path
) -> None:
    config = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
    del (
        config["rule_files"],
        config["scrape_configs"][0]["dns_sd_configs"],
    )  # promtool 2.42 panics where names are asked for
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    command = ["check", "service-discovery", "--timeout=2s", str(tmp_path / "prometheus.yml"), "kafka-broker"]

    done = subprocess.run([prometheus_tools / "promtool", *command], capture_output=True, text=True, check=True)

    found = {target["labels"]["__address__"]: target["labels"] for target in json.loads(done.stdout)}
    assert len(found) == 6
    common = {
        "job": "kafka-broker",
        "instance": "agent-2",
        "kafka_cluster": "regency",
        "env": "regency",
        "namespace": "compose",
        "strimzi_io_cluster": "regency",
        "strimzi_io_name": "regency-kafka",
        "kubernetes_pod_name": "regency-kafka-2",
        "pod": "regency-kafka-2",
        "container": "kafka",
    }
    for address, daemon in (("agent-2:9404", "agent"), ("agent-2:9405", "controller")):
        labels = {name: value for name, value in found[address].items() if not name.startswith("__")}
        assert labels == {**common, "daemon": daemon}
