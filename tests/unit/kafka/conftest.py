"""Builders for the wire tests: a message of any class and version with every field set to something that is not its
default."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest

_SIMPLE: dict[str, Any] = {
    "bool": True,
    "int8": 1,
    "int16": 2,
    "int32": 3,
    "int64": 1 << 40,
    "string": "größe",
    "bytes": b"bytes",
    "records": b"\0\xff" * 100,
    "uuid": UUID(int=7 << 64),
    "bitfield": {3, 8},
}


def _value(field: Any, version: int) -> Any:
    if field.is_array():
        return [_value(field.array_of, version), _value(field.array_of, version)]
    if field.is_struct():
        return field.data_class(version=version, **_values(field.fields, version))
    return _SIMPLE[field.type_str]


def _values(fields: dict[str, Any], version: int) -> dict[str, Any]:
    return {name: _value(field, version) for name, field in fields.items() if field.for_version_q(version)}


@pytest.fixture
def filled() -> Callable[[Any, int], Any]:
    """filled(message class, version): a message of it with every field of that version set."""
    return lambda message, version: message(version=version, **_values(message.fields, version))


@pytest.fixture
def nulled() -> Callable[[Any, int], Iterator[Any]]:
    """nulled(message class, version): for every nullable top-level field a message where that field is null."""

    def build(message: Any, version: int) -> Iterator[Any]:
        values = _values(message.fields, version)
        for name in values:
            if message.fields[name].nullable_for_version_q(version):
                yield message(version=version, **{**values, name: None})

    return build
