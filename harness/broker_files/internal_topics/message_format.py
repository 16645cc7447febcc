"""Kafka's message formats: ``formats/TOPIC.json`` has the messages in the records of a topic.

The notation is Kafka's (``common/message/*.json`` in its sources), with two differences: ``apiKeys`` has the numbers
that stand for a message in records, and all messages of a file share its ``commonStructs``. kafka-python's protocol
classes decode the messages.
"""

import base64
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from io import BytesIO
from typing import Any
from uuid import UUID

from harness.errors import raised_as

Fields = list[dict[str, Any]]


@dataclass(frozen=True)
class MessageFormat:
    """A message of the versions 0 to ``newest_version``; without a ``first_flexible`` version, none is flexible.

    ``definition``: the message as in Kafka's JSON; None if the file lists no field.
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
        """Return the fields by their names in snake case, without absent and unknown tagged fields; UUIDs are text.

        Raises ``ValueError`` for an unknown version, and for a malformed message.
        """
        if not 0 <= version <= self.newest_version:
            raise ValueError(f"{self.name} of version {version}: only versions up to {self.newest_version} are known")
        if self.struct is None:
            return {}
        is_flexible = self.first_flexible is not None and version >= self.first_flexible
        file = BytesIO(data)
        # kafka-python asserts that a struct in a tagged field has no tagged fields, and reads None for a cut string.
        errors = struct.error, ValueError, AssertionError, TypeError, AttributeError
        with raised_as(ValueError, f"malformed {self.name}", *errors):
            fields = self.struct.decode(file, version=version, compact=is_flexible, tagged=is_flexible)
        if rest := len(file.read()):
            raise ValueError(f"malformed {self.name}: {rest} bytes follow the message")
        return self._checked(self.struct, fields, version)

    def _checked(self, struct_field: Any, fields: Mapping[str, Any], version: int) -> dict[str, Any]:
        """Return the fields with UUIDs as text. Raises ``ValueError`` for a null that the format does not allow."""
        for field in struct_field.untagged_fields(version):
            is_uuid = field.type_str.removeprefix("[]") == "uuid" and not field.is_array()
            if fields[field.name] is None and not is_uuid and not field.nullable_for_version_q(version):
                raise ValueError(f"malformed {self.name}: {field.name} is null")
        known = struct_field.fields
        return {name: self._readable(known[name], value, version) for name, value in fields.items() if name in known}

    def _readable(self, field: Any, value: Any, version: int) -> Any:
        if field.type_str == "uuid":
            return uuid_text(value)
        if value is not None and field.is_array():
            return [self._readable(field.array_of, element, version) for element in value]
        return self._checked(field, value, version) if value is not None and field.is_struct() else value


def message_formats(topic: str) -> dict[str, MessageFormat]:
    """Return the messages in the records of a topic by name."""
    content = json.loads(files(__package__).joinpath("formats", f"{topic}.json").read_text())
    structs = {common["name"]: common["fields"] for common in content.get("commonStructs", ())}
    formats = {}
    for message in content["messages"]:
        name, flexible, fields = message["name"], message["flexibleVersions"], message.get("fields")
        formats[name] = MessageFormat(
            name,
            newest_version=int(message["validVersions"].rpartition("-")[2]),
            first_flexible=None if flexible == "none" else int(flexible.rstrip("+")),
            api_keys=tuple(message.get("apiKeys", ())),
            definition=None if fields is None else {**message, "fields": _with_structs(fields, structs)},
        )
    return formats


def uuid_text(value: UUID | None) -> str:
    """Return a UUID as ``org.apache.kafka.common.Uuid`` prints it; None is the zero UUID."""
    return base64.urlsafe_b64encode(value.bytes if value else bytes(16)).decode().rstrip("=")


def _with_structs(fields: Fields, structs: Mapping[str, Fields]) -> Fields:
    """Return the fields, each field of a common struct with the fields of that struct."""
    return [
        {**field, "fields": _with_structs(inner, structs)}
        if (inner := field.get("fields") or structs.get(field["type"].removeprefix("[]")))
        else field
        for field in fields
    ]
