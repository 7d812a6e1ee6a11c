"""Settings of a broker and of topics: the place to import them from.

Keys, defaults, units and ranges are those of Kafka's server.properties; `describe_settings()` lists them.
"""

from __future__ import annotations

from regency.model.settings.broker import BrokerSettings
from regency.model.settings.log_config import LogConfig, applicable_log_config, topic_log_config
from regency.model.settings.parse import SettingDescription, describe_settings, parse_settings
from regency.model.settings.values import SettingsInvalid

__all__ = [
    "BrokerSettings",
    "LogConfig",
    "SettingDescription",
    "SettingsInvalid",
    "applicable_log_config",
    "describe_settings",
    "parse_settings",
    "topic_log_config",
]
