"""Collects what is wrong in settings, so that all of it is reported at once."""

from __future__ import annotations

from collections.abc import Mapping

from regency.model.settings.values import Kind

_SHOWN = 200
SECRETS = frozenset({"regency.zookeeper.digest.auth"})
"""Keys whose values are never shown."""


class Problems:
    """Values being read, and what was wrong with them. `origins` says where keys stand, such as `line 12`."""

    def __init__(self, properties: Mapping[str, str], origins: Mapping[str, str]) -> None:
        self._properties = properties
        self._origins = origins
        self.found: list[str] = []

    def add(self, key: str, why: str) -> None:
        """Note a problem of a key: where it stands, and its value unless that is a secret."""
        origin = self._origins.get(key)
        place = f"{origin}: " if origin else ""
        value = "…" if key in SECRETS else self._properties.get(key, " (the default)")[:_SHOWN]
        self.found.append(f"{place}{key}={value}: {why}")

    def add_missing(self, key: str, why: str) -> None:
        """Note that a key is not there."""
        self.found.append(f"{key} is missing: {why}")

    def read(self, key: str, kind: Kind) -> object | None:
        """The value of a key that is there; None, and a problem, where it is not one of `kind`."""
        try:
            return kind.parse(self._properties[key].strip())
        except ValueError as error:
            self.add(key, str(error))
            return None
