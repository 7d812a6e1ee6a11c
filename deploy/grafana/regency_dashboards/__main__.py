"""`python -m regency_dashboards [DIRECTORY]`: write the dashboards as JSON, by default to deploy/grafana/dashboards."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from regency_dashboards import broker, cluster, controller, topic

TARGET = Path(__file__).resolve().parent.parent / "dashboards"


def dashboards() -> dict[str, str]:
    """JSON of every dashboard, by file name."""
    built = [module.build().build() for module in (cluster, controller, broker, topic)]
    return {f"{each.uid}.json": _text(each) for each in built}


def main(arguments: list[str]) -> int:
    """Write every dashboard, and remove JSON that no module makes any more."""
    target = Path(arguments[0]) if arguments else TARGET
    target.mkdir(parents=True, exist_ok=True)
    made = dashboards()
    for old in target.glob("*.json"):
        if old.name not in made:
            old.unlink()
    for name, text in made.items():
        (target / name).write_text(text)
    return 0


def _text(each: Dashboard) -> str:
    for number, panel in enumerate(each.panels or [], start=1):
        panel.id_val = number
    return json.dumps(each, cls=JSONEncoder, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
