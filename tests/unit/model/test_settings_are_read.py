"""Every setting is read by something, or is declared to have no effect, with the reason: nobody is deceived."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import regency
from regency.model.settings.broker import KEYS
from regency.model.settings.keys import TOPIC_KEY_OF, TOPIC_KEYS, WITHOUT_EFFECT

ROOT = Path(regency.__file__).parent.parent
SETTINGS = ROOT / "regency" / "model" / "settings"


def _read_attributes() -> set[str]:
    """Names of all attributes that the daemons and what they share read, but for where settings are put together."""
    files = {
        path
        for part in ("broker_agent", "controller", "regency")
        for path in (ROOT / part).rglob("*.py")
        if path.parent != SETTINGS
    }
    assert len(files) > 200, "the sources are where this test looks for them"
    return {
        node.attr
        for path in files
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    }


READ = _read_attributes()
TOPIC_KEYS_WITH_EFFECT = [key for key, (_, has_effect) in TOPIC_KEYS.items() if has_effect]


@pytest.mark.parametrize("key", TOPIC_KEYS_WITH_EFFECT)
def test_a_topic_key_is_read_or_declared_to_be_vain(key: str) -> None:
    assert (key.replace(".", "_") in READ) is (key not in WITHOUT_EFFECT)


@pytest.mark.parametrize("key", [key.name for key in KEYS.values() if key.field is not None])
def test_a_key_of_brokers_is_read_itself_or_as_the_topic_key_that_it_is_the_default_of(key: str) -> None:
    field = KEYS[key].field
    assert field in READ or TOPIC_KEY_OF[key] in TOPIC_KEYS_WITH_EFFECT


def test_what_is_vain_says_what_happens_instead() -> None:
    for key, (harmless, instead) in WITHOUT_EFFECT.items():
        kind, _ = TOPIC_KEYS[key]
        assert kind.parse(str(harmless).lower()) == harmless
        assert len(instead) > 10
