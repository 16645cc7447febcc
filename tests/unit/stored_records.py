"""Keys and values of the coordinators' topics, written by Kafka's own generated classes.

Of 4.4.0: ``MessageUtil.toCoordinatorTypePrefixedBytes`` for keys, ``toVersionPrefixedBytes`` for values. Each value has
the message of its key, the text of what it is about, and the text of its state.
"""

from __future__ import annotations

GROUPS, TRANSACTIONS, SHARES = "__consumer_offsets", "__transaction_state", "__share_group_state"


def topic_of(message: str) -> str:
    """Return the topic in which these records are."""
    if message == "TransactionLog":
        return TRANSACTIONS
    return SHARES if message in {"ShareSnapshot", "ShareUpdate"} else GROUPS


KEYS = {
    "LegacyOffsetCommit": "000000016700046461746100000003",
    "OffsetCommit": "0001000a7a61686c756e672dc3bc00046461746100000003",
    "GroupMetadata": "0002000167",
    "ConsumerGroupMetadata": "0003000167",
    "ConsumerGroupPartitionMetadata": "0004000167",
    "ConsumerGroupMemberMetadata": "000500016700036d2d31",
    "ConsumerGroupTargetAssignmentMetadata": "0006000167",
    "ConsumerGroupTargetAssignmentMember": "000700016700036d2d31",
    "ConsumerGroupCurrentMemberAssignment": "000800016700036d2d31",
    "ConsumerGroupRegularExpression": "00100001670003642e2a",
    "ShareGroupMemberMetadata": "000a00017300036d2d31",
    "ShareGroupMetadata": "000b000173",
    "ShareGroupTargetAssignmentMetadata": "000c000173",
    "ShareGroupTargetAssignmentMember": "000d00017300036d2d31",
    "ShareGroupCurrentMemberAssignment": "000e00017300036d2d31",
    "ShareGroupStatePartitionMetadata": "000f000173",
    "StreamsGroupMetadata": "001100027374",
    "StreamsGroupMemberMetadata": "00130002737400036d2d31",
    "StreamsGroupTargetAssignmentMetadata": "001400027374",
    "StreamsGroupTargetAssignmentMember": "00150002737400036d2d31",
    "StreamsGroupCurrentMemberAssignment": "00160002737400036d2d31",
    "StreamsGroupTopology": "001700027374",
    "TransactionLog": "000000087061796d656e7473",
    "ShareSnapshot": "000000017393453a9babc24aaba35e55b3c79cd37700000001",
    "ShareUpdate": "000100017393453a9babc24aaba35e55b3c79cd37700000001",
}

ROWS = [
    ("LegacyOffsetCommit", "0000000000000000003c00016d0000018bcfe56800", "group g, data-3", "committed offset 60"),
    ("OffsetCommit", "0000000000000000003c00016d0000018bcfe56800", "group zahlung-ü, data-3", "committed offset 60"),
    (
        "OffsetCommit",
        "0001000000000000003c00016d0000018bcfe56800ffffffffffffffff",
        "group zahlung-ü, data-3",
        "committed offset 60",
    ),
    ("OffsetCommit", "0002000000000000003c00016d0000018bcfe56800", "group zahlung-ü, data-3", "committed offset 60"),
    (
        "OffsetCommit",
        "0003000000000000003c0000000200016d0000018bcfe56800",
        "group zahlung-ü, data-3",
        "committed offset 60",
    ),
    (
        "OffsetCommit",
        ("0004000000000000003c00000002026d0000018bcfe5680001001093453a9babc24aaba35e55b3c79cd377"),
        "group zahlung-ü, data-3",
        "committed offset 60",
    ),
    (
        "OffsetCommit",
        "0004000000000000003c00000002026d0000018bcfe5680000",
        "group zahlung-ü, data-3",
        "committed offset 60",
    ),
    (
        "GroupMetadata",
        (
            "00000008636f6e73756d657200000007000572616e676500036d2d310000000100036d2d31000163000a2f3132372e30"
            "2e302e310000afc80000000200010000000102"
        ),
        "group g",
        "generation 7 with 1 member",
    ),
    (
        "GroupMetadata",
        (
            "00010008636f6e73756d657200000007000572616e676500036d2d310000000100036d2d31000163000a2f3132372e30"
            "2e302e31000493e00000afc80000000200010000000102"
        ),
        "group g",
        "generation 7 with 1 member",
    ),
    (
        "GroupMetadata",
        (
            "00020008636f6e73756d657200000007000572616e676500036d2d310000018bcfe568000000000100036d2d31000163"
            "000a2f3132372e302e302e31000493e00000afc80000000200010000000102"
        ),
        "group g",
        "generation 7 with 1 member",
    ),
    (
        "GroupMetadata",
        (
            "00030008636f6e73756d657200000007000572616e676500036d2d310000018bcfe568000000000100036d2d31000369"
            "2d31000163000a2f3132372e302e302e31000493e00000afc80000000200010000000102"
        ),
        "group g",
        "generation 7 with 1 member",
    ),
    (
        "GroupMetadata",
        (
            "000409636f6e73756d6572000000070672616e6765046d2d310000018bcfe5680002046d2d3104692d3102630b2f3132"
            "372e302e302e31000493e00000afc803000102020000"
        ),
        "group g",
        "generation 7 with 1 member",
    ),
    (
        "GroupMetadata",
        "00030008636f6e73756d657200000008ffffffffffffffffffffffff00000000",
        "group g",
        "generation 8 with 0 members",
    ),
    ("ConsumerGroupMetadata", "0000000000050100080000000000000063", "group g", "group epoch 5"),
    (
        "ConsumerGroupPartitionMetadata",
        "00000293453a9babc24aaba35e55b3c79cd377056461746100000002020000000002037231000000",
        "group g, partition metadata",
        "partition metadata of 1 topic",
    ),
    (
        "ConsumerGroupMemberMetadata",
        "000002690002630b2f3132372e302e302e3102056461746104642e2a000493e008756e69666f726d00",
        "group g, member m-1",
        "client c at /127.0.0.1",
    ),
    (
        "ConsumerGroupMemberMetadata",
        (
            "000002690002630b2f3132372e302e302e3102056461746104642e2a000493e008756e69666f726d010011010000afc8"
            "020672616e67650301020000"
        ),
        "group g, member m-1",
        "client c at /127.0.0.1",
    ),
    (
        "ConsumerGroupTargetAssignmentMetadata",
        "0000000000040100080000018bcfe56800",
        "group g, target assignment",
        "target assignment of epoch 4",
    ),
    (
        "ConsumerGroupTargetAssignmentMember",
        "00000293453a9babc24aaba35e55b3c79cd3770300000000000000010000",
        "group g, member m-1, target assignment",
        "2 partitions assigned",
    ),
    (
        "ConsumerGroupCurrentMemberAssignment",
        ("00000000000500000004000293453a9babc24aaba35e55b3c79cd3770300000000000000010100090300000003000000040100"),
        "group g, member m-1, current assignment",
        "member epoch 5, 2 partitions assigned",
    ),
    (
        "ConsumerGroupRegularExpression",
        "0000030564617461056475737400000000000000090000018bcfe5680000",
        "group g, regular expression d.*",
        "2 topics resolved at version 9",
    ),
    ("ShareGroupMemberMetadata", "000002720263032f6802056461746100", "share group s, member m-1", "client c at /h"),
    ("ShareGroupMetadata", "000000000006000000000000000100", "share group s", "group epoch 6"),
    (
        "ShareGroupTargetAssignmentMetadata",
        "00000000000600",
        "share group s, target assignment",
        "target assignment of epoch 6",
    ),
    (
        "ShareGroupTargetAssignmentMember",
        "00000293453a9babc24aaba35e55b3c79cd37702000000000000",
        "share group s, member m-1, target assignment",
        "1 partition assigned",
    ),
    (
        "ShareGroupCurrentMemberAssignment",
        "00000000000600000005000293453a9babc24aaba35e55b3c79cd37702000000000000",
        "share group s, member m-1, current assignment",
        "member epoch 6, 1 partition assigned",
    ),
    (
        "ShareGroupStatePartitionMetadata",
        (
            "0000010293453a9babc24aaba35e55b3c79cd3770564617461030000000000000001000293453a9babc24aaba35e55b3"
            "c79cd377046f6c640000"
        ),
        "share group s, state of partitions",
        "0 initializing and 2 initialized partitions",
    ),
    (
        "StreamsGroupMetadata",
        (
            "000000000003000000000000000204000400000001011902156e756d2e7374616e6462792e7265706c69636173023100"
            "020400000001030400000000"
        ),
        "streams group st",
        "group epoch 3",
    ),
    (
        "StreamsGroupMemberMetadata",
        "00000002720263032f6800000001000000010270ff02026b02760000",
        "streams group st, member m-1",
        "client c at /h",
    ),
    (
        "StreamsGroupMemberMetadata",
        "00000002720263032f6800000001000000010270010268ffff0002026b02760000",
        "streams group st, member m-1",
        "client c at /h",
    ),
    (
        "StreamsGroupTargetAssignmentMetadata",
        "00000000000300",
        "streams group st, target assignment",
        "target assignment of epoch 3",
    ),
    (
        "StreamsGroupTargetAssignmentMember",
        "0000020230030000000000000001000102023102000000000000",
        "streams group st, member m-1, target assignment",
        "3 partitions assigned",
    ),
    (
        "StreamsGroupCurrentMemberAssignment",
        "0000000000030000000201020230030000000000000001010009030000000300000003010101010100",
        "streams group st, member m-1, current assignment",
        "member epoch 3, 2 partitions assigned",
    ),
    (
        "StreamsGroupTopology",
        (
            "00000000000102023002056461746101020e612d732d6368616e67656c6f67000000020003020f636c65616e75702e70"
            "6f6c69637908636f6d7061637400000101020200000101000000"
        ),
        "streams group st, topology",
        "epoch 1 with 1 subtopology",
    ),
    (
        "TransactionLog",
        (
            "0000000000012a05f20000070000ea6001000000010004646174610000000200000000000000030000018bcfe5680000"
            "00018bcfe56418"
        ),
        "transactional id payments",
        "Ongoing of producer 5000000000, epoch 7",
    ),
    (
        "TransactionLog",
        (
            "0001000000012a05f20000070000ea6001020564617461030000000000000003000000018bcfe568000000018bcfe564"
            "180400080000000000000004010800000000000000060202000203020000"
        ),
        "transactional id payments",
        "Ongoing of producer 5000000000, epoch 7",
    ),
    (
        "TransactionLog",
        "0001000000000000000100000000000000000000000000000000000000000000000000",
        "transactional id payments",
        "Empty of producer 1, epoch 0",
    ),
    (
        "ShareSnapshot",
        (
            "000000000001000000020000000300000000000000280000018bcfe568000000018bcfe5680102000000000000002800"
            "000000000000310000010001000400000002"
        ),
        "share group s, topic id k0U6m6vCSqujXlWzx5zTdw, partition 1",
        "snapshot epoch 1, start offset 40, 1 state batch",
    ),
    (
        "ShareUpdate",
        "00000000000100000003000000000000002d0100",
        "share group s, topic id k0U6m6vCSqujXlWzx5zTdw, partition 1, update",
        "snapshot epoch 1, start offset 45, 0 state batches",
    ),
]

KEY_BYTES = {message: bytes.fromhex(text) for message, text in KEYS.items()}
VALUES = [(message, bytes.fromhex(value), subject, state) for message, value, subject, state in ROWS]


def offset_key(group: str, topic: str, partition: int, version: int = 1) -> bytes:
    """Return an ``OffsetCommitKey``."""
    names = b"".join(len(name.encode()).to_bytes(2) + name.encode() for name in (group, topic))
    return version.to_bytes(2) + names + partition.to_bytes(4)


def offset_value(offset: int) -> bytes:
    """Return an ``OffsetCommitValue`` of version 3."""
    return bytes.fromhex("0003") + offset.to_bytes(8) + bytes.fromhex("ffffffff00000000018bcfe56800")
