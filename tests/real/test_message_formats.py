"""The tables of message formats against the formats that Kafka publishes in its jars: field by field."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any
from zipfile import ZipFile

import pytest

from harness.broker_files.internal_topics.decode import CLUSTER_METADATA, KAFKAS_OWN
from harness.broker_files.internal_topics.message_format import message_formats
from harness.targets import find_target
from harness.targets.jars import jars_for

pytestmark = pytest.mark.commit

FOLDERS = ("common/message/", "common/metadata/")
NEWEST = 10**6
OURS = {name: ours for topic in (*KAFKAS_OWN, CLUSTER_METADATA) for name, ours in message_formats(topic).items()}
DRAFTS_OF_3_9 = ("ShareGroup", "ShareSnapshot", "ShareUpdate")
"""Share groups are from 4.0 on: brokers of 3.9 write none of these."""
SKIPPED = {"BeginTransactionRecord", "EndTransactionRecord", "AbortTransactionRecord"}
"""No field of them is read."""


def published(target: str) -> Iterator[dict[str, Any]]:
    """Yield the formats of messages in the jars of a target."""
    for path in jars_for(find_target(target)).paths:
        with ZipFile(path) as jar:
            for name in jar.namelist():
                if name.startswith(FOLDERS) and name.endswith(".json"):
                    lines = jar.read(name).decode().splitlines()
                    yield json.loads("\n".join(line for line in lines if not line.strip().startswith("//")))


def versions(text: str) -> tuple[int, int]:
    first, _, last = text.removesuffix("+").rpartition("-")
    return int(first or last), NEWEST if text.endswith("+") else int(last)


def described(
    fields: Sequence[Mapping[str, Any]], structs: Mapping[str, Any], newest: int, since: int = 0
) -> list[Any]:
    """Return name, type, versions, versions that may be null, tag and inner fields of each field."""
    rows = []
    for one in fields:
        first, last = versions(one.get("versions", one.get("taggedVersions", "0+")))
        first, last = max(first, since), min(last, newest)
        inner = one.get("fields") or structs.get(one["type"].removeprefix("[]"))
        is_nullable = "nullableVersions" in one and versions(one["nullableVersions"])[0] <= first
        rows.append(
            (one["name"], one["type"], first, last, is_nullable, one.get("tag"))
            + ((described(inner, structs, newest, first),) if inner else ())
        )
    return rows


@pytest.mark.parametrize("target", ["kafka-3.9", "kafka-4.4"])
def test_formats_of_the_jars(target: str) -> None:
    compared = set()
    for format_ in published(target):
        name, ours = format_["name"], OURS.get(format_["name"])
        if ours is None or name in SKIPPED or (target == "kafka-3.9" and name.startswith(DRAFTS_OF_3_9)):
            continue
        compared.add(name)
        mine = ours.struct._json["fields"]
        if name.endswith("Key"):
            # 3.9 counts the types of keys as their versions.
            keys = [[(one["name"], one["type"]) for one in fields] for fields in (format_["fields"], mine)]
            assert keys[0] == keys[1], name
            assert format_["flexibleVersions"] == "none", name
            continue
        newest = min(versions(format_["validVersions"])[1], ours.newest_version)
        structs = {one["name"]: one["fields"] for one in format_.get("commonStructs", [])}
        theirs, described_here = described(format_["fields"], structs, newest), described(mine, {}, newest)
        assert versions(format_["flexibleVersions"])[0] == ours.first_flexible, name
        if target == "kafka-4.4":
            assert newest == versions(format_["validVersions"])[1] == ours.newest_version, name
            assert [row for row in theirs if row in described_here or row[5] is None] == described_here, name
        else:
            # Tagged fields were added since.
            untagged = [[row[:6] for row in rows if row[5] is None] for rows in (theirs, described_here)]
            assert untagged[0] == untagged[1], name
    assert compared >= {"TopicRecord", "OffsetCommitKey", "OffsetCommitValue", "GroupMetadataValue"}
    assert "TransactionLogValue" in compared
    if target == "kafka-4.4":
        parts = product(("Share", "Streams"), ("Key", "Value"))
        only_older = {f"{kind}GroupPartitionMetadata{part}" for kind, part in parts}
        assert compared == OURS.keys() - SKIPPED - only_older
