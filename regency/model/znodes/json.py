"""How znodes are read: JSON of any origin becomes a typed value, or ZnodeMalformed that names path and field.

Numbers are strict: no booleans, no floats, within Kafka's ranges. Fields that were not asked for are skipped.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Final, TypeVar

import msgspec

from regency.model.errors import ZnodeMalformed
from regency.model.ids import BrokerId

T = TypeVar("T")

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1

Natural = Annotated[int, msgspec.Meta(ge=0, le=INT_MAX)]
"""A number of 0 to 2**31 - 1, as partitions are counted by."""

Id = Annotated[BrokerId, msgspec.Meta(ge=0, le=INT_MAX)]
"""A broker."""

IdOrNone = Annotated[BrokerId, msgspec.Meta(ge=-1, le=INT_MAX)]
"""A broker, or -1 for none."""

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


def read_json(decoder: msgspec.json.Decoder[T], path: str, data: bytes) -> T:
    """What `decoder` makes of `data`. Raises ZnodeMalformed(path), never anything else."""
    try:
        return decoder.decode(data)
    except UnicodeDecodeError as error:
        raise ZnodeMalformed(path, f"not UTF-8 at byte {error.start} of a text") from error
    except RecursionError as error:
        raise ZnodeMalformed(path, "JSON is nested too deeply") from error
    except msgspec.DecodeError as error:
        raise ZnodeMalformed(path, str(error) if data else "empty, expected JSON") from error


def check_utf8(path: str, data: bytes) -> None:
    """Raise ZnodeMalformed unless all of `data` is UTF-8, also where fields are skipped."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ZnodeMalformed(path, f"not UTF-8 at byte {error.start}") from error


def merge_fields(
    path: str, fields: Mapping[str, object], previous: bytes | None, *, dropped: Collection[str] = ()
) -> bytes:
    """JSON of `fields` in their order, then of every other field of `previous`, unchanged to the byte.

    Fields named in `dropped` are not taken over. Raises ZnodeMalformed(path) where `previous` is not a JSON object.
    """
    if not previous:
        return msgspec.json.encode(fields)
    check_utf8(path, previous)
    merged = dict(fields)
    for name, value in read_json(_fields, path, previous).items():
        if name not in fields and name not in dropped:
            merged[name] = value
    return msgspec.json.encode(merged)


def check_distinct(path: str, field: str, brokers: tuple[BrokerId, ...]) -> None:
    """Raise ZnodeMalformed where a broker stands twice in `field`."""
    if len(set(brokers)) != len(brokers):
        twice = next(broker for broker in brokers if brokers.count(broker) > 1)
        raise ZnodeMalformed(path, f"{field}: broker {twice} stands twice in {list(brokers)}")
