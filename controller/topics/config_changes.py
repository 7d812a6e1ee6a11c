"""AlterConfigs and IncrementalAlterConfigs: settings of topics and brokers, written with the word of it in one piece.

Agents follow /config/changes and read what is named there; so does whatever tool has always done so. Notifications that
everybody has had time to see are removed. Source: KIP-226, KIP-339.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from enum import IntEnum

import msgspec

from regency.controller.events import ControllerState, OfTerm, Request
from regency.controller.store import configs as store_configs
from regency.controller.store.access import WriteCode
from regency.controller.store.configs import LASTS_MS, StoredConfig
from regency.controller.term import Term
from regency.model.ids import BrokerId
from regency.model.kafka_errors import ErrorCode
from regency.model.settings.dynamic import (
    ConfigChange,
    ConfigRefused,
    alter_broker_config,
    alter_topic_config,
    broker_log_config,
)
from regency.model.settings.log_config import LogConfig
from regency.model.znodes.paths import EVERY_BROKER, parse_number

ROUNDS = 5
"""How often it is decided again because another writer has written the same settings meanwhile."""


class ResourceType(IntEnum):
    """Kinds of things that have settings; numbers are those of the protocol."""

    TOPIC = 2
    BROKER = 4


class ConfigAlteration(msgspec.Struct, frozen=True):
    """Changes to the settings of one thing. `name` of a broker is its id, or empty for all brokers."""

    resource_type: int
    name: str
    changes: tuple[ConfigChange, ...]

    @property
    def entity(self) -> str:
        """What it is called below /config."""
        if self.resource_type == ResourceType.TOPIC:
            return f"topics/{self.name}"
        return f"brokers/{self.name or EVERY_BROKER}"


class ConfigOutcome(msgspec.Struct, frozen=True):
    """What became of a ConfigAlteration."""

    resource_type: int
    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


@dataclass(eq=False)
class AlterConfigs(Request[tuple[ConfigOutcome, ...]]):
    """Change settings. Not `incremental`: what each resource is given replaces all it has of its own."""

    resources: tuple[ConfigAlteration, ...]
    _: KW_ONLY
    incremental: bool
    validate_only: bool

    state = ControllerState.TOPIC_CHANGE
    cause = "alter_configs"


def alter_configs(term: Term, event: AlterConfigs) -> tuple[ConfigOutcome, ...]:
    """Change settings, each resource's for itself. Answers stand in the order asked for."""
    times = Counter((each.resource_type, each.name) for each in event.resources)
    refused: dict[ConfigAlteration, ConfigRefused | None] = {}
    pending: list[ConfigAlteration] = []
    for each in event.resources:
        refused[each] = _objection(term, each, times[each.resource_type, each.name])
        if refused[each] is None:
            pending.append(each)
    for _ in range(ROUNDS):
        planned = _plan(term, pending, refused, incremental=event.incremental)
        pending = [] if event.validate_only else _write(term, planned, refused)
        if not pending:
            break
    for each in pending:
        why = f"The settings of {each.entity} were written {ROUNDS} times by another client meanwhile."
        refused[each] = ConfigRefused(ErrorCode.REQUEST_TIMED_OUT, why, hint="Try again.")
    return tuple(_outcome(each, refused[each]) for each in event.resources)


def _objection(term: Term, alteration: ConfigAlteration, times: int) -> ConfigRefused | None:
    """Why a resource cannot be changed, whatever is to be changed; None: it can."""
    name = alteration.name
    if times > 1:
        return ConfigRefused(ErrorCode.INVALID_REQUEST, f"{name!r} stands {times} times in the request.")
    if alteration.resource_type == ResourceType.TOPIC:
        if name not in term.context.topics:
            return ConfigRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{name}'.")
        if term.context.is_queued_for_deletion(name):
            return ConfigRefused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' is queued for deletion.")
        return None
    if alteration.resource_type == ResourceType.BROKER:
        broker = parse_number(name)
        if name and (broker is None or BrokerId(broker) not in term.context.brokers):
            listed = ", ".join(map(str, sorted(term.context.brokers))) or "none"
            return ConfigRefused(ErrorCode.INVALID_REQUEST, f"Broker {name!r} is not live; live are {listed}.")
        return None
    return ConfigRefused(
        ErrorCode.INVALID_REQUEST, f"Resources of type {alteration.resource_type} have no settings here."
    )


def _plan(
    term: Term,
    pending: Sequence[ConfigAlteration],
    refused: dict[ConfigAlteration, ConfigRefused | None],
    *,
    incremental: bool,
) -> dict[ConfigAlteration, tuple[StoredConfig, Mapping[str, str]]]:
    """What is to be written, with what it was decided from. Refused ones are noted."""
    everyone, own = f"brokers/{EVERY_BROKER}", f"brokers/{term.settings.broker_id}"
    wanted = dict.fromkeys([*(each.entity for each in pending), everyone, own])
    stored = store_configs.read_configs(term.store.access, list(wanted))
    layers = [stored[each].config or {} for each in (everyone, own)]
    of_brokers, _ = broker_log_config(term.log_config, *layers)
    planned: dict[ConfigAlteration, tuple[StoredConfig, Mapping[str, str]]] = {}
    for each in pending:
        before = stored[each.entity]
        try:
            planned[each] = (before, _altered(term, each, before, of_brokers, incremental=incremental))
        except ConfigRefused as refusal:
            refused[each] = refusal
    return planned


def _altered(
    term: Term, alteration: ConfigAlteration, before: StoredConfig, of_brokers: LogConfig, *, incremental: bool
) -> Mapping[str, str]:
    """The settings after the changes. Raises ConfigRefused."""
    if before.config is None:
        raise ConfigRefused(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"The settings of {alteration.entity} in ZooKeeper cannot be read.",
            hint="Correct or delete their znode.",
        )
    if alteration.resource_type == ResourceType.TOPIC:
        return alter_topic_config(before.config, alteration.changes, of_brokers, incremental=incremental)
    return alter_broker_config(before.config, alteration.changes, term.log_config, incremental=incremental)


def _write(
    term: Term,
    planned: Mapping[ConfigAlteration, tuple[StoredConfig, Mapping[str, str]]],
    refused: dict[ConfigAlteration, ConfigRefused | None],
) -> list[ConfigAlteration]:
    """Write what is planned and changes anything. Returns those that another writer has written meanwhile."""
    changed = {each: plan for each, plan in planned.items() if plan[0].config != plan[1]}
    results = store_configs.write_configs(term.store.access, {each.entity: plan for each, plan in changed.items()})
    again = []
    for each, (before, config) in changed.items():
        result = results[each.entity]
        if result.code is WriteCode.WRITTEN:
            was, shall_be = _words(before.config or {}), _words(config)
            term.decisions.note(f"settings of {each.entity}", was, shall_be, "a client asked for it")
        elif result.code is WriteCode.CONFLICT:
            again.append(each)
        else:
            refused[each] = ConfigRefused(ErrorCode.INVALID_CONFIG, f"Settings of {each.entity}: {result.why}.")
    return again


def _words(config: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(config.items())) or "none"


def _outcome(alteration: ConfigAlteration, refusal: ConfigRefused | None) -> ConfigOutcome:
    if refusal is None:
        return ConfigOutcome(alteration.resource_type, alteration.name)
    return ConfigOutcome(alteration.resource_type, alteration.name, refusal.error, str(refusal))


class NotificationsDue(OfTerm):
    """Notifications of changed settings may be old enough to be removed."""

    state = ControllerState.TOPIC_CHANGE
    cause = "old_notifications"


def look_after_notifications(term: Term) -> None:
    """Notifications may have been written: see to it that they are removed in time, unless that is done already."""
    if not term.notifications.awaited:
        _remove_old(term)


def on_notifications_due(term: Term, _: NotificationsDue) -> None:
    """Remove notifications that have been known for 15 minutes: everybody has read what they were about."""
    term.notifications.awaited = False
    _remove_old(term)


def _remove_old(term: Term) -> None:
    ages, now = term.notifications, term.clock.monotonic_ms()
    overdue = ages.overdue(store_configs.notifications(term.store.access), now)
    if overdue:
        store_configs.delete_notifications(term.store.access, overdue)
        ages.forget(overdue)
    if not ages.awaited and ages.oldest_ms is not None:
        ages.awaited = True
        wait_ms = max(ages.oldest_ms + LASTS_MS - now, 1)
        term.queue.put_later(NotificationsDue(term.epoch), wait_ms)
