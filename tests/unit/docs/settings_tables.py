"""The tables of settings in docs/reference/settings.md, made from the code. Run as a program it writes them anew:

.venv/bin/python tests/unit/docs/settings_tables.py
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from regency.model.settings import foreign as settings_foreign
from regency.model.settings.broker import KEYS
from regency.model.settings.dynamic import DYNAMIC_KEYS
from regency.model.settings.keys import TOPIC_KEY_OF, TOPIC_KEYS
from regency.model.settings.log_config import LogConfig
from regency.model.settings.parse import describe_settings
from regency.model.settings.values import format_value

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "settings.md"
_BROKER_KEY_OF = {topic_key: key for key, topic_key in TOPIC_KEY_OF.items()}


def broker_table() -> Iterator[str]:
    """Every key of server.properties that has an effect."""
    yield "| key | default | valid | changed while it runs | what it does |"
    yield "|---|---|---|---|---|"
    for each in describe_settings():
        default = "**must be set**" if each.required else _code(each.default)
        valid = _valid(each.type, each.allowed, each.unit)
        dynamic = "yes" if each.key in DYNAMIC_KEYS else "no"
        yield f"| `{each.key}` | {default} | {valid} | {dynamic} | {_cell(each.doc)} |"


def topic_table() -> Iterator[str]:
    """Every key that a topic may have of its own."""
    yield "| key | where the topic says nothing | valid | what it does |"
    yield "|---|---|---|---|"
    nothing = LogConfig()
    for name, (kind, has_effect) in TOPIC_KEYS.items():
        below = _BROKER_KEY_OF.get(name)
        valid = _valid(kind.type_name, kind.allowed, KEYS[below].unit if below else "")
        if not has_effect:
            yield f"| `{name}` | – | {valid} | can be set, and has no effect here |"
        elif below:
            yield f"| `{name}` | `{below}` | {valid} | {_cell(KEYS[below].doc)} |"
        else:
            own = format_value(getattr(nothing, name.replace(".", "_")))
            doc = f"The replicas that `{name.removesuffix('.replicas')}.rate` holds for."
            yield f"| `{name}` | {_code(own)} | {valid} | {doc} |"


def ignored_list() -> Iterator[str]:
    """Keys of Kafka that may stand in a file, and are told at the start to have no effect."""
    keys = sorted(settings_foreign._IGNORED)
    prefixes = sorted(f"{prefix}*" for prefix in settings_foreign._IGNORED_PREFIXES)
    yield ", ".join(f"`{key}`" for key in (*keys, *prefixes)) + "."


def refused_table() -> Iterator[str]:
    """Keys of Kafka with which a broker does not start."""
    yield "| key | why |"
    yield "|---|---|"
    for key, (_, why) in sorted(settings_foreign._REFUSED.items()):
        yield f"| `{key}` | {_cell(why)} |"
    for prefix, why in settings_foreign._REFUSED_PREFIXES:
        yield f"| `{prefix}*` | {_cell(why)} |"


TABLES = {"broker": broker_table, "topic": topic_table, "ignored": ignored_list, "refused": refused_table}


def rendered(page: str) -> str:
    """The page with its tables made anew. Raises KeyError for a mark of no table, ValueError where one is missing."""
    found: list[str] = []

    def table(match: re.Match[str]) -> str:
        found.append(match[2])
        return match[1] + "\n".join(TABLES[match[2]]()) + "\n" + match[3]

    made = re.sub(r"(<!-- settings: (\w+) -->\n).*?(<!-- end -->)", table, page, flags=re.DOTALL)
    if sorted(found) != sorted(TABLES):
        raise ValueError(f"marks of the tables {', '.join(TABLES)} are expected once each, found {', '.join(found)}")
    return made


def _valid(kind: str, allowed: str, unit: str) -> str:
    words = allowed or {"list": "list", "string": "text"}.get(kind, kind)
    return _cell(f"{words}, {unit}" if unit else words)


def _code(text: str) -> str:
    return f"`{text}`" if text else "–"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(rendered(PAGE.read_text("utf-8")), "utf-8")
