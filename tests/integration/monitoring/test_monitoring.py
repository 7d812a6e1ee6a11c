"""What deploy/ has for people who watch a cluster, tried on one: our dashboards, names that others' dashboards ask for,
and alerts: silent while all is well and after the repair, fired by breaking the cluster.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]
HERE = Path(__file__).resolve().parent
DASHBOARDS = HERE.parents[2] / "deploy" / "grafana" / "dashboards"
LABEL_VALUES = re.compile(r"label_values\((?P<selector>.+), (?P<label>\w+)\)")
Alerts = Callable[[], dict[str, set[str]]]
MOVED_BY_LOAD = {
    "Regency / Cluster: Bytes in A",
    "Regency / Cluster: Bytes out A",
    "Regency / Cluster: Records in A",
    "Regency / Cluster: Replicated bytes A",
    "Regency / Cluster: Replicated bytes B",
    "Regency / Cluster: Size on disk A",
    "Regency / Cluster: Leaders, by broker A",
    "Regency / Cluster: Controller epoch A",
    "Regency / Broker: Requests A",
    "Regency / Broker: Errors answered A",
    "Regency / Broker: Produce: where the time goes (p99) A",
    "Regency / Broker: Connections A",
    "Regency / Topic: Records kept A",
    "Regency / Topic: Records in A",
    "Regency / Topic: Bytes out A",
}
"""Titles of panels and queries that must tell more than 0 under load."""
OF_A_BUSY_MACHINE = {"RegencyDataLoopLag", "KafkaRequestHandlersBusy"}
"""Alerts that are right where other tests leave the cluster no time."""
KNOWN = yaml.safe_load((HERE / "known_dashboards.yml").read_text())["dashboards"]


def panels(board: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Title and expression of every query of a dashboard."""
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            yield f"{board['title']}: {panel['title']} {target['refId']}", target["expr"]


def variables(board: dict[str, Any], ask: Callable[[str, str], list[str]]) -> dict[str, list[str]]:
    """Every choice of every variable, in the order they depend on each other, as Grafana asks for them."""
    found: dict[str, list[str]] = {}
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            asked = LABEL_VALUES.fullmatch(variable["query"]["query"])
            assert asked is not None, variable
            found[variable["name"]] = ask(asked["label"], fill(asked["selector"], found))
    return found


def fill(expr: str, chosen: dict[str, list[str]]) -> str:
    """The expression as Grafana would send it with everything chosen."""
    for name, values in chosen.items():
        expr = expr.replace(f"${name}", "(" + "|".join(values) + ")")
    expr = expr.replace("$__rate_interval", "15s").replace("$__range", "5m")
    assert "$" not in expr, f"a variable that nobody fills: {expr}"
    return expr


def has_numbers(samples: list[tuple[dict[str, str], float]]) -> bool:
    return any(not math.isnan(value) for _, value in samples)


def test_every_panel_and_every_variable_has_data(watched: Any) -> None:
    boards = [json.loads(path.read_text()) for path in sorted(DASHBOARDS.glob("*.json"))]
    assert len(boards) == 4
    asked: dict[str, str] = {}
    for board in boards:
        chosen = variables(board, watched.prometheus.label_values)
        assert all(chosen.values()), f"{board['title']}: {chosen}"
        asked |= {title: fill(expr, chosen) for title, expr in panels(board)}
        # And All, which matches series without our labels too, for people who scrape without them.
        everything = {name: [".*"] for name in chosen}
        asked |= {f"{title} (All)": fill(expr, everything) for title, expr in panels(board)}

    assert asked.keys() >= MOVED_BY_LOAD

    def all_have_data() -> bool:
        for title, expr in list(asked.items()):
            samples = watched.prometheus.query(expr)
            if has_numbers(samples) and (title not in MOVED_BY_LOAD or any(value > 0 for _, value in samples)):
                del asked[title]
        return not asked

    watched.wait(all_have_data, 20, lambda: f"no data: {json.dumps(asked, indent=1)}")


@pytest.mark.parametrize("dashboard", KNOWN)
def test_names_and_labels_that_dashboards_for_kafka_ask_for_are_there(watched: Any, dashboard: str) -> None:
    wanted = KNOWN[dashboard]
    missing = []
    for name, labels in wanted["names"].items():
        matchers = ", ".join(f'{label}!=""' for label in (*wanted["labels"], *labels))
        if not watched.prometheus.query(f"{name}{{{matchers}}}"):
            missing.append(f"{name} with {', '.join((*wanted['labels'], *labels))}")
    assert missing == []


@pytest.fixture
def firing(watched: Any) -> Alerts:
    """Names of alerts that fire, each with the instances (or brokers, or cluster) it fires for."""

    def look() -> dict[str, set[str]]:
        found = {}
        for name, alerts in watched.prometheus.firing().items():
            for alert in alerts:
                texts = " ".join(alert["annotations"].values())
                assert "<no value>" not in texts, texts
                assert "error" not in alert, alert
            labels = [alert["labels"] for alert in alerts]
            found[name] = {each.get("instance") or each.get("broker_id") or each["kafka_cluster"] for each in labels}
        return found

    return look


def test_no_alert_fires_while_all_is_well(watched: Any, firing: Alerts) -> None:
    watched.cluster.wait_healthy(30)
    watched.wait(lambda: not firing().keys() - OF_A_BUSY_MACHINE, 60, firing)


def test_dead_brokers_fire_and_what_they_take_with_them(watched: Any, firing: Alerts) -> None:
    cluster = watched.cluster
    cluster.kill(3)
    watched.wait(lambda: firing().get("KafkaBrokerDown") == {"agent-3"}, 30, firing)
    watched.wait(lambda: firing().get("RegencyControllerDown") == {"agent-3"}, 30, firing)
    watched.wait(lambda: "KafkaUnderReplicatedPartitions" in firing(), 30, firing)
    assert "KafkaUnderMinIsrPartitions" not in firing(), "two of three are min.insync.replicas"

    cluster.kill(2)
    expected = {
        "KafkaBrokerDown": {"agent-2", "agent-3"},
        "KafkaUnderMinIsrPartitions": {"agent-1"},
        "KafkaOfflinePartitions": {"regency"},  # of the topic without replicas
        "KafkaUnderReplicatedPartitions": {"agent-1"},
    }
    watched.wait(lambda: expected.items() <= firing().items(), 60, firing)

    cluster.start(2)
    cluster.start(3)
    cluster.wait_healthy(60)
    watched.wait(lambda: not firing().keys() & expected.keys(), 30, firing)


def test_a_log_directory_that_fails_fires_until_it_is_repaired(watched: Any, firing: Alerts) -> None:
    cluster = watched.cluster
    failed = cluster.log_dirs(2)[0].parent / "data-2"
    failed.rename(failed.with_name("away"))
    failed.write_text("no directory")
    watched.wait(lambda: firing().get("KafkaOfflineLogDirectory") == {"agent-2"}, 60, firing)

    cluster.stop(2)
    failed.unlink()
    failed.with_name("away").rename(failed)
    cluster.start(2)
    cluster.wait_healthy(60)
    watched.wait(lambda: "KafkaOfflineLogDirectory" not in firing(), 30, firing)


@pytest.mark.parametrize(
    "counter",
    [
        "kafka_controller_controllerstats_uncleanleaderelections_total",
        'regency_controller_repairs_total{kind="stopped"}',
        "regency_controller_fenced_writes_total",
    ],
)
def test_rules_for_single_events_find_the_age_of_each_process(watched: Any, counter: str) -> None:
    matched = f"count({counter} and ignoring (kind) time() - process_start_time_seconds < 1e6) == 3"
    watched.wait(lambda: watched.prometheus.query(matched), 20, lambda: watched.prometheus.query(counter))


def test_partitions_without_a_leader_fire_on_while_nobody_rules(watched: Any, firing: Alerts) -> None:
    cluster = watched.cluster
    cluster.wait_healthy(30)
    brokers = "kafka_controller_kafkacontroller_activebrokercount"
    offline = "sum(kafka_controller_kafkacontroller_offlinepartitionscount)"
    # what was scraped while an earlier test restarted a broker looks just like the death that is to come
    whole = f"sum({brokers}) == 3 and {offline} == 0 and min(timestamp({brokers})) > {time.time()}"
    watched.wait(lambda: watched.prometheus.query(whole) and "KafkaOfflinePartitions" not in firing(), 60, firing)
    cluster.kill(3)
    counted = f"sum({brokers}) == 2 and {offline} > 0"
    watched.wait(lambda: watched.prometheus.query(counted) and "KafkaOfflinePartitions" in firing(), 60, firing)
    cluster.pause_zookeeper()
    try:
        seen = []

        def nobody_rules() -> bool:
            seen.append(firing())
            return "KafkaNoActiveController" in seen[-1]

        watched.wait(nobody_rules, 60, firing)
        assert all("KafkaOfflinePartitions" in alerts for alerts in seen), seen
    finally:  # for the tests after this one
        cluster.resume_zookeeper()
        cluster.start(3)
    cluster.wait_healthy(60)
    watched.wait(lambda: not firing().keys() & {"KafkaOfflinePartitions", "KafkaNoActiveController"}, 60, firing)


def test_nobody_rules_while_zookeeper_is_away(watched: Any, firing: Alerts) -> None:
    cluster = watched.cluster
    cluster.pause_zookeeper()
    try:
        watched.wait(lambda: firing().get("KafkaNoActiveController") == {"regency"}, 60, firing)
        watched.wait(lambda: "KafkaBrokerDown" not in firing(), 20, firing)
    finally:
        cluster.resume_zookeeper()
    cluster.wait_healthy(60)
    watched.wait(lambda: "KafkaNoActiveController" not in firing(), 60, firing)
    board = json.loads((DASHBOARDS / "regency-cluster.json").read_text())
    (marks,) = [fill(each["expr"], {"cluster": ["regency"]}) for each in board["annotations"]["list"]]
    watched.wait(lambda: watched.prometheus.query(marks), 30, lambda: f"no mark of the failover: {marks}")
