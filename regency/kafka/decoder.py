"""A strict decoder, compiled per message and version from kafka-python's schemas.

kafka-python decodes what its own client asked for; a listener decodes what strangers send. Its decoder (3.0.12) follows
a varint for as long as its bytes say so, which makes a long run of 0xff quadratic work; copies the rest of the message
for every non-empty tag section; takes a string or bytes field that ends early for a shorter one; takes a negative
length for an empty array; and gives None where the schema allows no null.

This one shares its schemas and data classes and has none of that: a varint has at most five bytes, every length is
checked against what is left before anything is built, the number of array elements in a message is bounded, null is
refused where the schema has none, and `records` are memoryviews of the frame, not copies. Bytes after the end of a
message are ignored, as Kafka does.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

from regency.model.errors import RegencyError


class FrameMalformed(RegencyError):
    """Bytes of a request or response that the protocol does not allow there. Close the connection they came from."""

    code = "frame_malformed"


class TooManyElements(FrameMalformed):
    """More array elements and tagged fields than this decoder was to take."""

    code = "too_many_elements"


class UnsupportedApi(RegencyError):
    """A request for an API, or a version of one, that is not offered. Kafka closes the connection, except for
    ApiVersions."""

    code = "unsupported_api"

    def __init__(self, api_key: int, version: int, correlation_id: int) -> None:
        super().__init__(f"API key {api_key} version {version} is not offered.")
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id


FEW_ELEMENTS: Final = 1_000
"""Array elements and tagged fields, nested ones included, of a request that takes no time worth mentioning."""

MAX_ELEMENTS: Final = 50_000
"""The same allowed in any request: bounds memory and time whatever a frame claims. A fetch, or a reassignment, of all
that 10,000 partitions have on a broker needs less.
"""

MAX_STRING_BYTES: Final = 0x7FFF
"""Of strings, as in Kafka: in old versions their length has two bytes."""

MAX_ANSWER_ELEMENTS: Final = 50_000_000
"""The same of an answer, which comes from a broker that was asked: metadata of all topics has ten per partition."""

Decoder = Callable[[memoryview, int, int], tuple[Any, int]]
"""From frame, position and elements allowed to the value there and the position after it. Raises what
`DECODING_ERRORS` lists, TooManyElements among them.
"""

DECODING_ERRORS: Final = (FrameMalformed, struct.error, IndexError, ValueError)
"""What reading beyond the end, bytes that are not UTF-8 and refused lengths raise."""

_ZERO_UUID: Final = UUID(int=0)


def read_uvarint(data: memoryview, position: int) -> tuple[int, int]:
    """The unsigned varint at `position` and the position after it. Raises FrameMalformed beyond 32 bits."""
    value = 0
    for shift in range(0, 35, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                break
            return value, position
    raise FrameMalformed(f"The varint that ends at byte {position} has more than 32 bits.")


def compile_decoder(message: Any, version: int, *, flexible: bool) -> Decoder:
    """A decoder of the body (without header) of `message`, a kafka-python message class, in `version`."""
    source = _Source(version, flexible)
    source.begin("decode_message")
    source.struct("value", message.fields, message)
    return source.finish(f"{message.name}_v{version}")


def skip_tags(data: memoryview, position: int) -> int:
    """The position after a tag section of which no tag matters. Raises FrameMalformed where it runs past the end."""
    count, position = read_uvarint(data, position)
    if count > FEW_ELEMENTS:
        raise FrameMalformed(f"A header has {count} tagged fields.")
    for _ in range(count):
        _, position = read_uvarint(data, position)
        size, position = read_uvarint(data, position)
        position += size
        if position > len(data):
            raise FrameMalformed(f"A tagged field ends at byte {position} of a frame of {len(data)} bytes.")
    return position


class _Tags:
    """Decoder of the tag section of one struct: known tags are set on the object, unknown ones skipped (KIP-482)."""

    def __init__(self, known: dict[int, tuple[str, Decoder]]) -> None:
        self._known = known

    def __call__(self, data: memoryview, position: int, owner: Any, budget: int) -> tuple[int, int]:
        """The position after the section, and what is left of `budget`."""
        count, position = read_uvarint(data, position)
        budget -= count
        if budget < 0:
            raise TooManyElements(f"{count} tagged fields end before byte {position}.")
        for _ in range(count):
            tag, position = read_uvarint(data, position)
            size, position = read_uvarint(data, position)
            end = position + size
            if end > len(data):
                raise FrameMalformed(f"Tagged field {tag} ends at byte {end} of a frame of {len(data)} bytes.")
            if tag in self._known:
                name, decode = self._known[tag]
                value, after = decode(data, position, budget)
                if after != end:
                    raise FrameMalformed(f"Tagged field {tag} claims {size} bytes and has {after - position}.")
                setattr(owner, name, value)
            position = end
        return position, budget


class _Source:
    """The text of one decoder while it is written. Names in it: data, size, pos, budget, and generated ones."""

    def __init__(self, version: int, flexible: bool) -> None:
        self._version = version
        self._flexible = flexible
        self._lines: list[str] = []
        self._depth = 0
        self._names = 0
        self._globals: dict[str, Any] = {
            "unpack_from": struct.unpack_from,
            "uvarint": read_uvarint,
            "UUID": UUID,
            "ZERO_UUID": _ZERO_UUID,
            "new": object.__new__,
            "FrameMalformed": FrameMalformed,
            "TooManyElements": TooManyElements,
        }

    def begin(self, function: str) -> None:
        self._function = function
        self._line(f"def {function}(data, pos, budget):")
        self._depth += 1
        self._line("size = len(data)")

    def finish(self, title: str) -> Decoder:
        self._line("return value, pos")
        code = compile("\n".join(self._lines), f"<decoder of {title}>", "exec")
        # The text comes from schemas in an installed package and from nothing else.
        exec(code, self._globals)  # noqa: S102
        decoder: Decoder = self._globals[self._function]
        return decoder

    def struct(self, target: str, fields: dict[str, Any], data_class: Any) -> None:
        """Build a `data_class` in `target` from the fields this version has."""
        present = [field for field in fields.values() if field.for_version_q(self._version)]
        tagged = [field for field in present if field.tagged_field_q(self._version)]
        untagged = [field for field in present if not field.tagged_field_q(self._version)]
        self._line(f"{target} = new({self._constant(data_class)})")
        self._line(f"{target}._version = {self._version}")
        self._line(f"{target}.tags = {target}.unknown_tags = None")
        while untagged:
            run = 0
            while run < len(untagged) and untagged[run].is_batchable():
                run += 1
            if run > 1:
                self._batch(target, untagged[:run])
            else:
                run = 1
                self._field(f"{target}.{untagged[0].name}", untagged[0])
            untagged = untagged[run:]
        if self._flexible:
            tags = self._constant(_Tags({field.tag: (field.name, self._standalone(field)) for field in tagged}))
            self._line("if data[pos]:")
            self._line(f"    pos, budget = {tags}(data, pos, {target}, budget)")
            self._line("else:")
            self._line("    pos += 1")

    def _standalone(self, field: Any) -> Decoder:
        source = _Source(self._version, self._flexible)
        source.begin("decode_field")
        source._field("value", field)
        return source.finish(f"{field.name}_v{self._version}")

    def _batch(self, target: str, fields: list[Any]) -> None:
        codecs = [_codec(field) for field in fields]
        names = ", ".join(f"{target}.{field.name}" for field in fields)
        self._line(f'{names} = unpack_from(">{"".join(codec.fmt for codec in codecs)}", data, pos)')
        self._line(f"pos += {sum(codec.size for codec in codecs)}")

    def _field(self, target: str, field: Any) -> None:
        if field.is_array():
            self._array(target, field)
        elif field.is_struct():
            if field.nullable_for_version_q(self._version):
                raise NotImplementedError(f"{field.name}: a nullable struct is in no message of the version table")
            name = self._name()
            self.struct(name, field.fields, field.data_class)
            self._line(f"{target} = {name}")
        elif field.is_batchable():
            codec = _codec(field)
            self._line(f'{target} = unpack_from(">{codec.fmt}", data, pos)[0]')
            self._line(f"pos += {codec.size}")
        elif field.type_str == "uuid":
            self._line("if pos + 16 > size: raise FrameMalformed(f'An id begins at byte {pos} of {size}.')")
            self._line(f"{target} = UUID(bytes=bytes(data[pos:pos + 16]))")
            self._line(f"if {target} == ZERO_UUID: {target} = None")
            self._line("pos += 16")
        elif field.type_str == "bitfield":
            self._line(f"{target} = {self._constant(_codec(field).from_32_bit_field)}(unpack_from('>I', data, pos)[0])")
            self._line(f"if {target} == {{31}}: {target} = None")
            self._line("pos += 4")
        else:
            self._sized(target, field)

    def _sized(self, target: str, field: Any) -> None:
        """A string, bytes or records field."""
        text = field.type_str == "string"
        count = self._length("h" if text else "i", field, target)
        self._depth += 1
        self._line(f"end = pos + {count}")
        self._line("if end > size: raise FrameMalformed(f'A field ends at byte {end} of a frame of {size} bytes.')")
        if text:
            self._line(f"if {count} > {MAX_STRING_BYTES}: raise FrameMalformed(f'A string has {{{count}}} bytes.')")
            self._line(f"{target} = str(data[pos:end], 'utf-8')")
        elif field.type_str == "records":
            self._line(f"{target} = data[pos:end]")
        else:
            self._line(f"{target} = bytes(data[pos:end])")
        self._line("pos = end")
        self._depth -= 1

    def _array(self, target: str, field: Any) -> None:
        count = self._length("i", field, target)
        item, items = self._name(), self._name()
        element = field.array_of
        self._depth += 1
        self._line(f"budget -= {count}")
        self._line(f"if {count} > size - pos or budget < 0:")
        self._line(f"    error = FrameMalformed if {count} > size - pos else TooManyElements")
        self._line(f"    raise error(f'An array of {{{count}}} elements begins at byte {{pos}} of {{size}}.')")
        self._line(f"{items} = []")
        self._line(f"for _ in range({count}):")
        self._depth += 1
        if element.is_struct():
            self.struct(item, element.fields, element.data_class)
        else:
            self._field(item, element)
        self._line(f"{items}.append({item})")
        self._depth -= 1
        self._line(f"{target} = {items}")
        self._depth -= 1

    def _length(self, fixed: str, field: Any, target: str) -> str:
        """Read a length, deal with null, and leave an open `else:` for the value. Gives the name of the length."""
        count = self._name()
        if self._flexible:
            self._line(f"{count} = data[pos]")
            self._line("pos += 1")
            self._line(f"if {count} > 127: {count}, pos = uvarint(data, pos - 1)")
            self._line(f"{count} -= 1")
        else:
            self._line(f'{count} = unpack_from(">{fixed}", data, pos)[0]')
            self._line(f"pos += {2 if fixed == 'h' else 4}")
        self._line(f"if {count} < 0:")
        if field.nullable_for_version_q(self._version):
            self._line(f"    if {count} != -1: raise FrameMalformed(f'{field.name} has length {{{count}}}.')")
            self._line(f"    {target} = None")
        else:
            self._line(f"    raise FrameMalformed('{field.name} must not be null.')")
        self._line("else:")
        return count

    def _line(self, text: str) -> None:
        self._lines.append("    " * self._depth + text)

    def _name(self) -> str:
        self._names += 1
        return f"v{self._names}"

    def _constant(self, value: Any) -> str:
        name = f"c{len(self._globals)}"
        self._globals[name] = value
        return name


def _codec(field: Any) -> Any:
    """kafka-python's codec of a simple field, which knows format and size."""
    return field.TYPES[field.type_str]
