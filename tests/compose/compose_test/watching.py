"""What Prometheus must know of the cluster: every target, data in every panel, the right alerts and no others."""

from __future__ import annotations

from collections.abc import Sequence

from compose_test.dashboards import queries
from compose_test.project import AGENTS
from compose_test.prometheus import Alert, Prometheus
from compose_test.waiting import eventually, expect

SCRAPED_S = 60.0
CALM_S = 120.0
"""Alerts wait for at most a minute here; then one evaluation, and what a start stirs up."""
FIRES_S = 120.0
RULER_SCRAPED_S = 30.0
"""What a controller that has just begun to rule tells of the cluster is there after its next scrape, within 10 s."""
DAEMONS = ("agent", "controller")


def check_targets(prometheus: Prometheus, agents: Sequence[str] = AGENTS) -> str:
    """Both daemons of every agent are scraped, and all that is scraped is up."""
    wanted = {(agent, daemon) for agent in agents for daemon in DAEMONS}

    def up() -> bool:
        targets = prometheus.targets()
        found = {(target.instance, target.daemon) for target in targets if target.job == "kafka-broker"}
        return found == wanted and all(target.health == "up" for target in targets)

    eventually(prometheus.ready, within_s=SCRAPED_S, what="Prometheus answers")
    eventually(up, within_s=SCRAPED_S, what=lambda: f"all of {sorted(wanted)} up; {prometheus.targets()}")
    return f"{len(prometheus.targets())} targets up"


def check_calm(prometheus: Prometheus) -> str:
    """Every rule can be evaluated, and none fires or is about to."""

    def calm() -> bool:
        rules = prometheus.rules()
        evaluated = all(not rule["lastEvaluation"].startswith("0001") for rule in rules)
        return bool(rules) and evaluated and not prometheus.alerts()

    eventually(calm, within_s=CALM_S, what=lambda: f"no alert; {prometheus.alerts()}")
    rules = prometheus.rules()
    broken = [f"{rule['name']}: {rule.get('lastError')}" for rule in rules if rule["health"] != "ok"]
    expect(not broken, f"rules that cannot be evaluated: {broken}")
    return f"{len(rules)} alert rules, none fires"


def check_dashboards(prometheus: Prometheus, since_s: float) -> str:
    """Every expression of every panel gives data: now, or for a graph at some time since `since_s` (wall clock)."""
    asked = queries()
    expect(asked, "there are no dashboards in deploy/grafana/dashboards")

    def empty() -> list[str]:
        return [
            f"{query.dashboard}, {query.panel}: {query.expression}"
            for query in asked
            if not prometheus.has_data(query.expression, since_s=None if query.instant else since_s)
        ]

    eventually(
        lambda: not empty(),
        within_s=RULER_SCRAPED_S,
        what=lambda: "\n".join([f"every of {len(asked)} expressions gives data; these do not:", *empty()]),
    )
    return f"{len(asked)} expressions of {len({query.dashboard for query in asked})} dashboards give data"


def wait_for_alerts(prometheus: Prometheus, wanted: set[tuple[str, str]], because: str) -> str:
    """Wait until these alerts, (name, instance), fire. Raises CheckFailed where others do as well."""

    def firing() -> set[tuple[str, str]]:
        return {(alert.name, alert.instance) for alert in prometheus.firing()}

    eventually(
        lambda: wanted <= firing(),
        within_s=FIRES_S,
        what=lambda: f"{sorted(wanted)} fire because {because}; {prometheus.alerts()}",
    )
    others = [alert for alert in sorted(firing()) if alert not in wanted]
    expect(not others, f"besides {sorted(wanted)}, because {because}, these fire: {others}")
    return f"{because}: {', '.join(f'{name} of {instance}' for name, instance in sorted(wanted))}, and no other"


def wait_for_relief(prometheus: Prometheus, names: set[str]) -> None:
    """Wait until no alert of these names fires."""

    def left() -> list[Alert]:
        return [alert for alert in prometheus.firing() if alert.name in names]

    eventually(lambda: not left(), within_s=CALM_S, what=lambda: f"relief; {left()}")
