"""Kafka's message formats (``common/message/*.json`` in Kafka's sources), as text files in a short notation.

The file ``formats/TOPIC.txt`` lists the messages in the records of a topic. The lines below a message are its fields,
and the lines below a field are its inner fields::

    OffsetCommitKey 0 apiKey 0,1
        group string
    OffsetCommitValue 0-4 flexible 4+
        offset int64
        leaderEpoch int32 3+ = -1
        topicId uuid tag 0 4+
    struct TopicPartition
        TopicId uuid

A message's line has its valid versions, after ``flexible`` the versions with compact and tagged fields (KIP-482), and
after ``apiKey`` the numbers that stand for the message in records. A field's line has its type, and where they apply
``tag N``, ``nullable``, the versions of the field (all by default) and ``=`` with a default other than the type's. A
field whose default is ``null`` is nullable. A ``struct`` has the inner fields of fields of this type. kafka-python's
protocol classes decode the messages.
"""

from __future__ import annotations

import base64
import struct
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from io import BytesIO
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

_NULL = "null"
_ALL_VERSIONS = "0+"
_INDENT = 4

_Blocks = list[tuple[str, list[str]]]


@dataclass(frozen=True)
class MessageFormat:
    """A message of the versions 0 to ``newest_version``. ``first_flexible``: None if no version is flexible.

    ``api_keys``: the numbers that stand for the message. ``definition``: the message as in Kafka's JSON; None if the
    file lists no field.
    """

    name: str
    newest_version: int
    first_flexible: int | None
    api_keys: tuple[int, ...]
    definition: Mapping[str, Any] | None

    @cached_property
    def struct(self) -> Any:
        """Kafka-python's codec, which decodes and encodes; None if the file lists no field."""
        from kafka.protocol.schemas.fields import StructField  # noqa: PLC0415  (it imports all of kafka-python)

        return None if self.definition is None else StructField(self.definition)

    def decode(self, data: bytes, version: int) -> dict[str, Any]:
        """Return the fields by their names in snake case, without absent and unknown tagged fields.

        Arrays are lists, UUIDs text as Kafka prints them. Raises ``ValueError`` for an unknown version, and for a
        malformed message.
        """
        if not 0 <= version <= self.newest_version:
            raise ValueError(f"{self.name} of version {version}: only versions up to {self.newest_version} are known")
        if self.struct is None:
            return {}
        is_flexible = self.first_flexible is not None and version >= self.first_flexible
        file = BytesIO(data)
        try:
            fields = self.struct.decode(file, version=version, compact=is_flexible, tagged=is_flexible)
        # kafka-python asserts that a struct in a tagged field has no tagged fields, and reads None for a cut string.
        except (struct.error, ValueError, AssertionError, TypeError, AttributeError) as error:
            raise ValueError(f"malformed {self.name}: {error or type(error).__name__}") from error
        if rest := len(file.read()):
            raise ValueError(f"malformed {self.name}: {rest} bytes follow the message")
        return self._checked(self.struct, fields, version)

    def _checked(self, struct_field: Any, fields: Mapping[str, Any], version: int) -> dict[str, Any]:
        """Return the fields with UUIDs as text. Raises ``ValueError`` for a null that the format does not allow."""
        for field in struct_field.untagged_fields(version):
            is_uuid = field.type_str.removeprefix("[]") == "uuid" and not field.is_array()
            if fields[field.name] is None and not is_uuid and not field.nullable_for_version_q(version):
                raise ValueError(f"malformed {self.name}: {field.name} is null")
        named = {name: value for name, value in fields.items() if name in struct_field.fields}
        return {name: self._readable(struct_field.fields[name], value, version) for name, value in named.items()}

    def _readable(self, field: Any, value: Any, version: int) -> Any:
        if value is None and (field.is_array() or field.is_struct()):
            return None
        if field.is_array():
            return [self._readable(field.array_of, element, version) for element in value]
        if field.is_struct():
            return self._checked(field, value, version)
        return uuid_text(value) if field.type_str == "uuid" else value


def message_formats(topic: str) -> dict[str, MessageFormat]:
    """Return the messages in the records of a topic by name."""
    text = files(__package__).joinpath("formats", f"{topic}.txt").read_text()
    blocks = _blocks([line for line in text.splitlines() if line.strip() and not line.startswith("#")], 0)
    structs = {head.removeprefix("struct "): body for head, body in blocks if head.startswith("struct ")}
    formats = {}
    for head, body in blocks:
        name, versions, *words = head.split()
        if name == "struct":
            continue
        options = dict(zip(words[::2], words[1::2], strict=True))
        formats[name] = MessageFormat(
            name,
            newest_version=int(versions.rpartition("-")[2]),
            first_flexible=int(options["flexible"].rstrip("+")) if "flexible" in options else None,
            api_keys=tuple(map(int, options["apiKey"].split(","))) if "apiKey" in options else (),
            definition={"name": name, "type": name, "versions": versions, "fields": _fields(body, _INDENT, structs)}
            if body
            else None,
        )
    return formats


def uuid_text(value: UUID | None) -> str:
    """Return a UUID as ``org.apache.kafka.common.Uuid`` prints it; None is the zero UUID."""
    return base64.urlsafe_b64encode(value.bytes if value else bytes(16)).decode().rstrip("=")


def _blocks(lines: Sequence[str], indent: int) -> _Blocks:
    """Return each line of this indentation with the lines below it that are indented further."""
    blocks: _Blocks = []
    for line in lines:
        if len(line) - len(line.lstrip()) == indent:
            blocks.append((line.strip(), []))
        else:
            blocks[-1][1].append(line)
    return blocks


def _fields(lines: Sequence[str], indent: int, structs: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
    return [_field(head, body, indent, structs) for head, body in _blocks(lines, indent)]


def _field(head: str, body: Sequence[str], indent: int, structs: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    text, _, default = (part.strip() for part in head.partition("="))
    name, kind, *words = text.split()
    tag = int(words.pop(words.index("tag") + 1)) if "tag" in words else None
    versions = next((word for word in words if word[0].isdigit()), _ALL_VERSIONS)
    described: dict[str, Any] = {"name": name, "type": kind, "versions": versions, "default": default}
    if "nullable" in words or default == _NULL:
        described["nullableVersions"] = versions
    if tag is not None:
        described |= {"tag": tag, "taggedVersions": versions}
    if body:
        described["fields"] = _fields(body, indent + _INDENT, structs)
    elif common := structs.get(kind.removeprefix("[]")):
        described["fields"] = _fields(common, _INDENT, structs)
    return described
