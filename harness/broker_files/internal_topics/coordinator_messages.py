"""Keys and values of the coordinators' topics, by Kafka's published message formats.

Source: ``common/message/*.json`` in the jars ``kafka-group-coordinator``, ``kafka-transaction-coordinator`` and
``kafka-share-coordinator`` of 4.4.0; formats 9 and 18 from the sources of 4.0 and 4.1, as later versions removed them.
Brokers of 3.9 have the same formats with fewer fields. A key begins with its type, a value with its version.
"""

from __future__ import annotations

from typing import Final

from harness.broker_files.internal_topics.message_format import message_formats

GROUP_KEYS: Final = {
    0: "OffsetCommit",
    1: "OffsetCommit",
    2: "GroupMetadata",
    3: "ConsumerGroupMetadata",
    4: "ConsumerGroupPartitionMetadata",
    5: "ConsumerGroupMemberMetadata",
    6: "ConsumerGroupTargetAssignmentMetadata",
    7: "ConsumerGroupTargetAssignmentMember",
    8: "ConsumerGroupCurrentMemberAssignment",
    9: "ShareGroupPartitionMetadata",
    10: "ShareGroupMemberMetadata",
    11: "ShareGroupMetadata",
    12: "ShareGroupTargetAssignmentMetadata",
    13: "ShareGroupTargetAssignmentMember",
    14: "ShareGroupCurrentMemberAssignment",
    15: "ShareGroupStatePartitionMetadata",
    16: "ConsumerGroupRegularExpression",
    17: "StreamsGroupMetadata",
    18: "StreamsGroupPartitionMetadata",
    19: "StreamsGroupMemberMetadata",
    20: "StreamsGroupTargetAssignmentMetadata",
    21: "StreamsGroupTargetAssignmentMember",
    22: "StreamsGroupCurrentMemberAssignment",
    23: "StreamsGroupTopology",
}
"""Messages of ``__consumer_offsets`` by the type at the start of a key (``CoordinatorRecordType``, ``apiKey``).

Both group coordinators read 0 and 1 in the same way (``GroupMetadataManager.readMessageKey`` of 3.9;
``LegacyOffsetCommit`` of 4.x has the fields of ``OffsetCommit`` at version 0)."""

TRANSACTION_KEYS: Final = {0: "TransactionLog"}
"""Messages of ``__transaction_state``."""

SHARE_KEYS: Final = {0: "ShareSnapshot", 1: "ShareUpdate"}
"""Messages of ``__share_group_state`` (KIP-932)."""

_GROUP = """
    GroupId string
"""
_MEMBER = """
    GroupId string
    MemberId string
"""
_SHARE_PARTITION = """
    GroupId string
    TopicId uuid
    Partition int32
"""
_OWN_KEYS: Final = {
    "OffsetCommit": """
    group string
    topic string
    partition int32
""",
    "GroupMetadata": """
    group string
""",
    "ConsumerGroupRegularExpression": """
    GroupId string
    RegularExpression string
""",
    "TransactionLog": """
    TransactionalId string
""",
    "ShareSnapshot": _SHARE_PARTITION,
    "ShareUpdate": _SHARE_PARTITION,
}


def _key_fields(message: str) -> str:
    is_of_member = message.startswith(("ConsumerGroup", "ShareGroup", "StreamsGroup")) and (
        message.endswith(("MemberMetadata", "AssignmentMember", "MemberAssignment"))
    )
    return _OWN_KEYS.get(message, _MEMBER if is_of_member else _GROUP)


MESSAGES: Final = (*dict.fromkeys(GROUP_KEYS.values()), *TRANSACTION_KEYS.values(), *SHARE_KEYS.values())

KEYS: Final = message_formats("".join(f"{message}Key 0{_key_fields(message)}" for message in MESSAGES))
"""Formats of keys by name. No key has flexible versions; the type replaces the version."""

_TOPIC_METADATA = """
    Topics []TopicMetadata
        TopicId uuid
        TopicName string
        NumPartitions int32
        PartitionMetadata []PartitionMetadata
            Partition int32
            Racks []string
"""
_TARGET_METADATA = """
    AssignmentEpoch int32
    AssignmentTimestamp int64 tag 0
"""
_TARGET_MEMBER = """
    TopicPartitions []TopicPartition
        TopicId uuid
        Partitions []int32
"""
_TOPIC_PARTITIONS = """
        TopicId uuid
        Partitions []int32
        AssignmentEpochs []int32 tag 0 = null
"""
_TASKS = """
        SubtopologyId string
        Partitions []int32
"""
_TASKS_WITH_EPOCHS = f"""{_TASKS}
        AssignmentEpochs []int32 tag 0 = null
"""
_TOPIC_INFO = """
            Name string
            Partitions int32
            ReplicationFactor int16
            TopicConfigs []TopicConfig
                key string
                value string
"""
_STATE_BATCHES = """
    StateBatches []StateBatch
        FirstOffset int64
        LastOffset int64
        DeliveryState int8
        DeliveryCount int16
"""

VALUES: Final = message_formats(f"""
OffsetCommitValue 0-4 flexible 4+
    offset int64
    leaderEpoch int32 3+ = -1
    metadata string
    commitTimestamp int64
    expireTimestamp int64 1 = -1
    topicId uuid tag 0 4+
GroupMetadataValue 0-4 flexible 4+
    protocolType string
    generation int32
    protocol string nullable
    leader string nullable
    currentStateTimestamp int64 2+ = -1
    members []MemberMetadata
        memberId string
        groupInstanceId string 3+ = null
        clientId string
        clientHost string
        rebalanceTimeout int32 1+ = -1
        sessionTimeout int32
        subscription bytes
        assignment bytes
ConsumerGroupMetadataValue 0 flexible 0+
    Epoch int32
    MetadataHash int64 tag 0
ConsumerGroupPartitionMetadataValue 0 flexible 0+
{_TOPIC_METADATA}
ConsumerGroupMemberMetadataValue 0 flexible 0+
    InstanceId string nullable
    RackId string nullable
    ClientId string
    ClientHost string
    SubscribedTopicNames []string
    SubscribedTopicRegex string nullable
    RebalanceTimeoutMs int32 = -1
    ServerAssignor string nullable
    ClassicMemberMetadata ClassicMemberMetadata tag 0 = null
        SessionTimeoutMs int32
        SupportedProtocols []ClassicProtocol
            Name string
            Metadata bytes
ConsumerGroupTargetAssignmentMetadataValue 0 flexible 0+
{_TARGET_METADATA}
ConsumerGroupTargetAssignmentMemberValue 0 flexible 0+
{_TARGET_MEMBER}
ConsumerGroupCurrentMemberAssignmentValue 0 flexible 0+
    MemberEpoch int32
    PreviousMemberEpoch int32
    State int8
    AssignedPartitions []TopicPartitions
{_TOPIC_PARTITIONS}
    PartitionsPendingRevocation []TopicPartitions
{_TOPIC_PARTITIONS}
ConsumerGroupRegularExpressionValue 0 flexible 0+
    Topics []string
    Version int64
    Timestamp int64
ShareGroupPartitionMetadataValue 0 flexible 0+
{_TOPIC_METADATA}
ShareGroupMemberMetadataValue 0 flexible 0+
    RackId string nullable
    ClientId string
    ClientHost string
    SubscribedTopicNames []string
ShareGroupMetadataValue 0 flexible 0+
    Epoch int32
    MetadataHash int64
ShareGroupTargetAssignmentMetadataValue 0 flexible 0+
{_TARGET_METADATA}
ShareGroupTargetAssignmentMemberValue 0 flexible 0+
{_TARGET_MEMBER}
ShareGroupCurrentMemberAssignmentValue 0 flexible 0+
    MemberEpoch int32
    PreviousMemberEpoch int32
    State int8
    AssignedPartitions []TopicPartitions
        TopicId uuid
        Partitions []int32
ShareGroupStatePartitionMetadataValue 0 flexible 0+
    InitializingTopics []TopicPartitionsInfo
        TopicId uuid
        TopicName string
        Partitions []int32
    InitializedTopics []TopicPartitionsInfo
        TopicId uuid
        TopicName string
        Partitions []int32
    DeletingTopics []TopicInfo
        TopicId uuid
        TopicName string
StreamsGroupMetadataValue 0 flexible 0+
    Epoch int32
    MetadataHash int64
    ValidatedTopologyEpoch int32 tag 0 = -1
    LastAssignmentConfigs []LastAssignmentConfig tag 1 = null
        Key string
        Value string
    StoredDescriptionTopologyEpoch int32 tag 2 = -1
    FailedDescriptionTopologyEpoch int32 tag 3 = -1
StreamsGroupPartitionMetadataValue 0 flexible 0+
{_TOPIC_METADATA}
StreamsGroupMemberMetadataValue 0 flexible 0+
    InstanceId string nullable
    RackId string nullable
    ClientId string
    ClientHost string
    RebalanceTimeoutMs int32 = -1
    TopologyEpoch int32
    ProcessId string
    UserEndpoint Endpoint = null
        Host string
        Port uint16
    ClientTags []KeyValue
        Key string
        Value string
StreamsGroupTargetAssignmentMetadataValue 0 flexible 0+
{_TARGET_METADATA}
StreamsGroupTargetAssignmentMemberValue 0 flexible 0+
    ActiveTasks []TaskIds
{_TASKS}
    StandbyTasks []TaskIds
{_TASKS}
    WarmupTasks []TaskIds
{_TASKS}
StreamsGroupCurrentMemberAssignmentValue 0 flexible 0+
    MemberEpoch int32
    PreviousMemberEpoch int32
    State int8
    ActiveTasks []TaskIds
{_TASKS_WITH_EPOCHS}
    StandbyTasks []TaskIds
{_TASKS_WITH_EPOCHS}
    WarmupTasks []TaskIds
{_TASKS_WITH_EPOCHS}
    ActiveTasksPendingRevocation []TaskIds
{_TASKS_WITH_EPOCHS}
    StandbyTasksPendingRevocation []TaskIds
{_TASKS_WITH_EPOCHS}
    WarmupTasksPendingRevocation []TaskIds
{_TASKS_WITH_EPOCHS}
StreamsGroupTopologyValue 0 flexible 0+
    Epoch int32
    Subtopologies []Subtopology
        SubtopologyId string
        SourceTopics []string
        SourceTopicRegex []string
        StateChangelogTopics []TopicInfo
{_TOPIC_INFO}
        RepartitionSinkTopics []string
        RepartitionSourceTopics []TopicInfo
{_TOPIC_INFO}
        CopartitionGroups []CopartitionGroup
            SourceTopics []int16
            SourceTopicRegex []int16
            RepartitionSourceTopics []int16
TransactionLogValue 0-1 flexible 1+
    ProducerId int64
    PreviousProducerId int64 tag 0 1+ = -1
    NextProducerId int64 tag 1 1+ = -1
    ProducerEpoch int16
    NextProducerEpoch int16 tag 3 1+ = -1
    TransactionTimeoutMs int32
    TransactionStatus int8
    TransactionPartitions []PartitionsSchema nullable
        Topic string
        PartitionIds []int32
    TransactionLastUpdateTimestampMs int64
    TransactionStartTimestampMs int64
    ClientTransactionVersion int16 tag 2 1+
ShareSnapshotValue 0 flexible 0+
    SnapshotEpoch int32
    StateEpoch int32
    LeaderEpoch int32
    StartOffset int64
    DeliveryCompleteCount int32 tag 0 = -1
    CreateTimestamp int64
    WriteTimestamp int64
{_STATE_BATCHES}
ShareUpdateValue 0 flexible 0+
    SnapshotEpoch int32
    LeaderEpoch int32
    StartOffset int64
    DeliveryCompleteCount int32 tag 0 = -1
{_STATE_BATCHES}
""")
"""Formats of values by name."""
