"""Records of internal topics: against bytes of Kafka's own classes, broken ones, and hostile keys."""

import json
import random
from dataclasses import asdict

import pytest
from hostile import HOSTILE, raise_if_forged, raise_if_raw
from stored_records import GROUPS, KEY_BYTES, SHARES, TRANSACTIONS, VALUES, offset_key, offset_value, topic_of

from harness.broker_files.copies.selection import is_compacted
from harness.broker_files.internal_topics.decode import KAFKAS_OWN, DecodedKey, internal_topic, transaction_state
from harness.broker_files.internal_topics.message_format import message_formats
from harness.broker_files.internal_topics.phrases import Subject, committed_offset, state, subject
from harness.broker_files.segments.batches import Record
from harness.escape import escape, to_json

FORMATS = {name: message for topic in KAFKAS_OWN for name, message in message_formats(topic).items()}
MESSAGES = {name.removesuffix("Key") for name in FORMATS if name.endswith("Key")}
REMOVED = {"ShareGroupPartitionMetadata", "StreamsGroupPartitionMetadata"}
"""Written by 4.0 and 4.1 alone: no class of 4.4.0 writes them."""


def known(topic: str, key: bytes | None) -> Subject:
    found = subject(topic, key)
    assert found is not None
    return found


@pytest.mark.parametrize(("message", "value", "text", "says"), VALUES)
def test_records_of_kafka(message: str, value: bytes, text: str, says: str) -> None:
    about = known(topic_of(message), KEY_BYTES[message])
    assert about.key is not None
    assert (about.key.type, about.text, about.note) == (message.removeprefix("Legacy"), text, "")
    assert state(topic_of(message), about, value) == says


def test_every_version_of_every_message_has_bytes_of_kafka() -> None:
    assert MESSAGES - {message.removeprefix("Legacy") for message, *_ in VALUES} == REMOVED
    versions = {(message, int.from_bytes(value[:2])) for message, value, *_ in VALUES}
    newest = {message: FORMATS[f"{message}Value"].newest_version for message in MESSAGES - REMOVED}
    assert versions >= {(message, version) for message in newest for version in range(newest[message] + 1)}


@pytest.mark.parametrize("message", sorted(REMOVED))
def test_what_only_older_brokers_wrote_has_the_format_of_consumer_groups(message: str) -> None:
    """The fields were the same (sources of 4.0 and 4.1)."""
    (number,) = FORMATS[f"{message}Key"].api_keys
    about = known(GROUPS, number.to_bytes(2) + KEY_BYTES["ConsumerGroupPartitionMetadata"][2:])
    kind = message.partition("Group")[0].lower()
    assert about.text == f"{kind} group g, partition metadata"
    value = next(value for name, value, *_ in VALUES if name == "ConsumerGroupPartitionMetadata")
    assert state(GROUPS, about, value) == "partition metadata of 1 topic"


def test_fields_of_a_key_offsets_that_a_group_committed_and_tombstones() -> None:
    about, fields = known(GROUPS, offset_key("g", "data", 0)), {"group": "g", "topic": "data", "partition": 0}
    assert (about.kind, about.text) == ("group coordinator's topic", "group g, data-0")
    assert about.key == DecodedKey("OffsetCommit", fields)
    assert committed_offset(GROUPS, about, offset_value(60)) == 60
    assert committed_offset(GROUPS, about, None) is None
    assert committed_offset(GROUPS, about, b"\0\3") is None
    assert committed_offset(GROUPS, known(GROUPS, KEY_BYTES["GroupMetadata"]), offset_value(60)) is None
    texts = {
        "OffsetCommit": "no committed offset",
        "GroupMetadata": "no group metadata",
        "ShareGroupMetadata": "no record",
    }
    assert {message: state(GROUPS, known(GROUPS, KEY_BYTES[message]), None) for message in texts} == texts


@pytest.mark.parametrize(("topic", "key", "note"), [
    (GROUPS, b"\0\x18\0\1g", "unknown key type 24 of a group coordinator's topic"),
    (GROUPS, b"\xff\xff\0\1g", "unknown key type -1 of a group coordinator's topic"),
    (TRANSACTIONS, b"\0\1\0\1t", "unknown key type 1 of a transaction coordinator's topic"),
    (SHARES, b"\0\2", "unknown key type 2 of a share coordinator's topic"),
    (GROUPS, b"\0", "a key of 1 bytes has no version"),
    (GROUPS, b"", "a key of 0 bytes has no version"),
    (GROUPS, b"\0\2\0\5g", "malformed GroupMetadataKey: Buffer underrun"),
    (GROUPS, b"\0\2\0\1gx", "malformed GroupMetadataKey: 1 bytes follow the message"),
    (GROUPS, b"\0\2\xff\xff", "malformed GroupMetadataKey: group is null"),
    (GROUPS, b"\0\2\0\1\xff", "malformed GroupMetadataKey: 'utf-8' codec"),
    ("_schemas", b"[1]", "it is not a JSON object"),
    ("_schemas", b"{}", "it has no keytype of a schema topic"),
    ("_schemas", b"\xff", "'utf-8' codec"),
    ("_schemas", b"[" * 100_000, "nested too deeply"),
    ("_schemas", b'{"keytype": "SCHEMA"}', "it has no subject"),
    ("_schemas", b'{"keytype": NaN}', "NaN is not JSON"),
    ("connect-configs", b"connectors", "it is not a key of a Connect config topic"),
    ("connect-offsets", b'["a"]', "it is not a key of a Connect offset topic"),
    ("connect-offsets", b"[1, {}]", "it is not a key of a Connect offset topic"),
    ("app-store-changelog", b"k", "a key of 1 bytes in the format of the application"),
])  # fmt: skip
def test_what_is_not_known_is_shown_escaped_with_a_note(topic: str, key: bytes, note: str) -> None:
    about = known(topic, key)
    assert about.key is None
    assert about.text.startswith(f"key {escape(key[:20])}")
    assert about.note.startswith("the key is shown escaped: ")
    assert note in about.note
    assert state(topic, about, b"v") == "a value of 1 bytes"
    assert state(topic, about, None) == "no record"


def test_json_of_any_depth_has_a_phrase() -> None:
    for depth in range(800, 1000):
        nested = b"[" * depth + b"]" * depth
        assert known("connect-offsets", b'["c",%b]' % nested).text
        assert state("connect-offsets", known("connect-offsets", b'["c",{}]'), b'{"a":%b}' % nested)


@pytest.mark.parametrize(("value", "why"), [
    (b"\0\5" + offset_value(1)[2:], "only versions up to 4"),
    (b"\xff\xff", "only versions up to 4"),
    (b"", "no version"),
    (offset_value(1)[:-1], "malformed OffsetCommitValue"),
    (offset_value(1) + b"\0", "1 bytes follow"),
])  # fmt: skip
def test_a_value_of_another_version_is_not_guessed(value: bytes, why: str) -> None:
    says = state(GROUPS, known(GROUPS, offset_key("g", "data", 0)), value)
    assert says.startswith(f"a value of {len(value)} bytes that cannot be decoded (")
    assert why in says


@pytest.mark.parametrize(("topic", "key", "value", "text", "says"), [
    ("connect-configs", "connector-jdbc", {"properties": {"a": "secret"}}, "connector jdbc", "of 1 property"),
    ("connect-configs", "task-j-dbc-12", {"properties": {}}, "connector j-dbc, task 12", "of 0 properties"),
    ("connect-configs", "commit-jdbc", {"tasks": 2}, "connector jdbc, number of tasks", "2 tasks"),
    ("my-connect-cluster-configs", "target-state-jdbc", {"state": "PAUSED", "state.v2": "STOPPED"},
        "connector jdbc, target state", "target state STOPPED"),
    ("connect-configs", "target-state-jdbc", {"state": "PAUSED"}, "connector jdbc, target state", "state PAUSED"),
    ("connect-configs", "session-key", {"key": "secret", "algorithm": "a", "creation-timestamp": 5},
        "the session key of the workers", "a key of 5"),
    ("connect-configs", "restart-connector-jdbc", {"include-tasks": True}, "connector jdbc, restart request",
        "a restart request"),
    ("connect-configs", "logger-cluster-a.b", {"level": "DEBUG"}, "logger a.b", "level DEBUG"),
    ("docker-connect-status", "status-connector-jdbc", {"state": "RUNNING", "worker_id": "w:1"},
        "connector jdbc, status", "status RUNNING on worker w:1"),
    ("connect_statuses", "status-task-jdbc-0", {"state": "FAILED", "worker_id": "w:1"},
        "connector jdbc, task 0, status", "status FAILED on worker w:1"),
    ("connect-status", "status-topic-orders:connector-jdbc", {"topic": {"name": "orders"}},
        "connector jdbc, topic orders", "an active topic"),
    ("connect-offsets", '["jdbc",{"table":"t"}]', {"lsn": 7}, 'connector jdbc, source partition {"table":"t"}',
        'source offset {"lsn":7}'),
    ("mm2-offsets.source.internal", '["mm2",{"cluster":"a"}]', {"offset": 7},
        'connector mm2, source partition {"cluster":"a"}', 'source offset {"offset":7}'),
    ("_schemas", '{"keytype":"SCHEMA","subject":"o-value","version":3,"magic":1}', {"id": 7, "deleted": True},
        "subject o-value, version 3", "schema id 7, deleted"),
    ("_schemas", '{"keytype":"CONFIG","subject":null,"magic":0}', {"compatibilityLevel": "FULL"},
        "compatibility of subject null", "compatibility FULL"),
    ("_schemas", '{"keytype":"MODE","subject":"o"}', {"mode": "READONLY"}, "mode of subject o", "mode READONLY"),
    ("_schemas", '{"keytype":"DELETE_SUBJECT","subject":"o","magic":0}', {"subject": "o", "version": 2},
        "deletion of subject o", "deleted up to version 2"),
    ("_schemas", '{"keytype":"CLEAR_SUBJECT","subject":"o"}', {}, "clearing of subject o", "cleared"),
    ("_schemas", '{"keytype":"NOOP","magic":0}', {}, 'NOOP {"magic":0}', "a value of 2 bytes"),
])  # fmt: skip
def test_records_of_tools(topic: str, key: str, value: dict[str, object], text: str, says: str) -> None:
    about = known(topic, key.encode())
    assert (about.text, about.note) == (text, "")
    shown = state(topic, about, json.dumps(value).encode())
    assert says in shown
    assert "secret" not in shown + to_json(asdict(about))


@pytest.mark.parametrize(
    "topic", ["orders", "__cluster_metadata", "mm2-offset-syncs.a.internal", "disconnect", "changelog"]
)
def test_other_topics_have_records_of_their_applications(topic: str) -> None:
    assert internal_topic(topic) is None
    assert subject(topic, b"k") is subject(GROUPS, None) is None


def test_hostile_names_and_values_are_escaped() -> None:
    for about in (
        known(GROUPS, offset_key(HOSTILE, HOSTILE, 0)),
        known(GROUPS, b"\0\x7f" + HOSTILE.encode()),
        known("_schemas", json.dumps({"keytype": HOSTILE, HOSTILE: HOSTILE}).encode()),
        known("_schemas", json.dumps({"keytype": "SCHEMA", "subject": HOSTILE, "version": [HOSTILE]}).encode()),
        known("connect-configs", f"connector-{HOSTILE}".encode()),
        known("connect-offsets", json.dumps([HOSTILE, {HOSTILE: HOSTILE}]).encode()),
        known("app-s-changelog", HOSTILE.encode()),
    ):
        for text in (about.text, about.note, to_json(asdict(about))):
            raise_if_raw(text)
            raise_if_forged(text)
    fields = {"client_id": HOSTILE, "client_host": HOSTILE, "subscribed_topic_names": []}
    encoded = FORMATS["ShareGroupMemberMetadataValue"].struct.encode(fields, version=0, compact=True, tagged=True)
    mode = b'{"keytype":"MODE","subject":""}'
    for topic, key, value in (
        (GROUPS, KEY_BYTES["ShareGroupMemberMetadata"], b"\0\0" + encoded),
        ("_schemas", mode, json.dumps({"mode": HOSTILE}).encode()),
        ("_schemas", mode, HOSTILE.encode()),
        ("connect-offsets", b'["c",{}]', json.dumps({HOSTILE: HOSTILE}).encode()),
    ):
        text = state(topic, known(topic, key), value)
        raise_if_raw(text)
        raise_if_forged(text)


def test_no_damage_ends_in_another_error() -> None:
    """Every truncated record, and many changed bytes, give a text: records from a disk may hold any bytes."""
    rng = random.Random(22)  # noqa: S311
    for message, value, *_ in VALUES:
        topic, key = topic_of(message), KEY_BYTES[message]
        about = known(topic, key)
        for size in range(len(key)):
            assert known(topic, key[:size]).key is None
        for size in range(len(value)):
            assert "cannot be decoded" in state(topic, about, value[:size])
        for _ in range(50):
            damaged = bytearray(value)
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
            raise_if_raw(state(topic, about, bytes(damaged)))


def test_the_reader_of_transaction_states_reads_the_same() -> None:
    """`transaction_state` reads the beginning alone, and of ids that are no UTF-8, too: it gives evidence."""
    decoders = internal_topic(TRANSACTIONS)
    assert decoders is not None
    for message, value, _, says in VALUES:
        if message == "TransactionLog":
            key = KEY_BYTES[message]
            read = transaction_state(Record(0, 0, key, value))
            assert read is not None
            assert decoders.key(key).fields == {"transactional_id": read.transactional_id}
            assert says.startswith(f"{read.state} of producer {read.producer_id}, ")


@pytest.mark.parametrize(("policy", "compacted"), [
    (None, {GROUPS, TRANSACTIONS}),  # brokers create the share coordinator's topic with "delete" (KIP-932)
    ("delete", set()),
    ("compact, delete", {GROUPS, TRANSACTIONS, SHARES, "data"}),
])  # fmt: skip
def test_a_topic_is_compacted_by_its_policy_or_as_brokers_create_it(policy: str | None, compacted: set[str]) -> None:
    assert {topic for topic in (GROUPS, TRANSACTIONS, SHARES, "data") if is_compacted(topic, policy)} == compacted
