"""Keys and values of the coordinators' topics, written by Kafka's own generated classes.

Of 4.4.0: ``MessageUtil.toCoordinatorTypePrefixedBytes`` for keys, ``toVersionPrefixedBytes`` for values.
"""

GROUPS, TRANSACTIONS, SHARES = "__consumer_offsets", "__transaction_state", "__share_group_state"


def topic_of(message: str) -> str:
    """Return the topic in which these records are."""
    if message == "TransactionLog":
        return TRANSACTIONS
    return SHARES if message in {"ShareSnapshot", "ShareUpdate"} else GROUPS


KEYS = {
    "LegacyOffsetCommit": ("000000016700046461746100000003", "group g, data-3"),
    "OffsetCommit": ("0001000a7a61686c756e672dc3bc00046461746100000003", "group zahlung-ü, data-3"),
    "GroupMetadata": ("0002000167", "group g"), "ConsumerGroupMetadata": ("0003000167", "group g"),
    "ConsumerGroupPartitionMetadata": ("0004000167", "group g, partition metadata"),
    "ConsumerGroupMemberMetadata": ("000500016700036d2d31", "group g, member m-1"),
    "ConsumerGroupTargetAssignmentMetadata": ("0006000167", "group g, target assignment"),
    "ConsumerGroupTargetAssignmentMember": ("000700016700036d2d31", "group g, member m-1, target assignment"),
    "ConsumerGroupCurrentMemberAssignment": ("000800016700036d2d31", "group g, member m-1, current assignment"),
    "ConsumerGroupRegularExpression": ("00100001670003642e2a", "group g, regular expression d.*"),
    "ShareGroupMemberMetadata": ("000a00017300036d2d31", "share group s, member m-1"),
    "ShareGroupMetadata": ("000b000173", "share group s"),
    "ShareGroupTargetAssignmentMetadata": ("000c000173", "share group s, target assignment"),
    "ShareGroupTargetAssignmentMember": ("000d00017300036d2d31", "share group s, member m-1, target assignment"),
    "ShareGroupCurrentMemberAssignment": ("000e00017300036d2d31", "share group s, member m-1, current assignment"),
    "ShareGroupStatePartitionMetadata": ("000f000173", "share group s, state of partitions"),
    "StreamsGroupMetadata": ("001100027374", "streams group st"),
    "StreamsGroupMemberMetadata": ("00130002737400036d2d31", "streams group st, member m-1"),
    "StreamsGroupTargetAssignmentMetadata": ("001400027374", "streams group st, target assignment"),
    "StreamsGroupTargetAssignmentMember": ("00150002737400036d2d31", "streams group st, member m-1, target assignment"),
    "StreamsGroupCurrentMemberAssignment": (
        "00160002737400036d2d31", "streams group st, member m-1, current assignment",
    ),
    "StreamsGroupTopology": ("001700027374", "streams group st, topology"),
    "TransactionLog": ("000000087061796d656e7473", "transactional id payments"),
    "ShareSnapshot": (
        "000000017393453a9babc24aaba35e55b3c79cd37700000001",
        "share group s, topic id k0U6m6vCSqujXlWzx5zTdw, partition 1",
    ),
    "ShareUpdate": (
        "000100017393453a9babc24aaba35e55b3c79cd37700000001",
        "share group s, topic id k0U6m6vCSqujXlWzx5zTdw, partition 1, update",
    ),
}  # fmt: skip
"""The key of each message, and the text of what a record with this key is about."""

STATES = {
    ("LegacyOffsetCommit", "committed offset 60"): ("0000000000000000003c00016d0000018bcfe56800",),
    ("OffsetCommit", "committed offset 60"): (
        "0000000000000000003c00016d0000018bcfe56800",
        "0001000000000000003c00016d0000018bcfe56800ffffffffffffffff",
        "0002000000000000003c00016d0000018bcfe56800",
        "0003000000000000003c0000000200016d0000018bcfe56800",
        "0004000000000000003c00000002026d0000018bcfe5680001001093453a9babc24aaba35e55b3c79cd377",
        "0004000000000000003c00000002026d0000018bcfe5680000",
    ),
    ("GroupMetadata", "generation 7 with 1 member"): (
        """00000008636f6e73756d657200000007000572616e676500036d2d310000000100036d2d31000163000a2f3132372e302e302e31
        0000afc80000000200010000000102""",
        """00010008636f6e73756d657200000007000572616e676500036d2d310000000100036d2d31000163000a2f3132372e302e302e31
        000493e00000afc80000000200010000000102""",
        """00020008636f6e73756d657200000007000572616e676500036d2d310000018bcfe568000000000100036d2d31000163000a2f31
        32372e302e302e31000493e00000afc80000000200010000000102""",
        """00030008636f6e73756d657200000007000572616e676500036d2d310000018bcfe568000000000100036d2d310003692d310001
        63000a2f3132372e302e302e31000493e00000afc80000000200010000000102""",
        """000409636f6e73756d6572000000070672616e6765046d2d310000018bcfe5680002046d2d3104692d3102630b2f3132372e302e
        302e31000493e00000afc803000102020000""",
    ),
    ("GroupMetadata", "generation 8 with 0 members"): (
        "00030008636f6e73756d657200000008ffffffffffffffffffffffff00000000",
    ),
    ("ConsumerGroupMetadata", "group epoch 5"): ("0000000000050100080000000000000063",),
    ("ConsumerGroupPartitionMetadata", "partition metadata of 1 topic"): (
        "00000293453a9babc24aaba35e55b3c79cd377056461746100000002020000000002037231000000",
    ),
    ("ConsumerGroupMemberMetadata", "client c at /127.0.0.1"): (
        "000002690002630b2f3132372e302e302e3102056461746104642e2a000493e008756e69666f726d00",
        """000002690002630b2f3132372e302e302e3102056461746104642e2a000493e008756e69666f726d010011010000afc802067261
        6e67650301020000""",
    ),
    ("ConsumerGroupTargetAssignmentMetadata", "target assignment of epoch 4"): ("0000000000040100080000018bcfe56800",),
    ("ConsumerGroupTargetAssignmentMember", "2 partitions assigned"): (
        "00000293453a9babc24aaba35e55b3c79cd3770300000000000000010000",
    ),
    ("ConsumerGroupCurrentMemberAssignment", "member epoch 5, 2 partitions assigned"): (
        "00000000000500000004000293453a9babc24aaba35e55b3c79cd3770300000000000000010100090300000003000000040100",
    ),
    ("ConsumerGroupRegularExpression", "2 topics resolved at version 9"): (
        "0000030564617461056475737400000000000000090000018bcfe5680000",
    ),
    ("ShareGroupMemberMetadata", "client c at /h"): ("000002720263032f6802056461746100",),
    ("ShareGroupMetadata", "group epoch 6"): ("000000000006000000000000000100",),
    ("ShareGroupTargetAssignmentMetadata", "target assignment of epoch 6"): ("00000000000600",),
    ("ShareGroupTargetAssignmentMember", "1 partition assigned"): (
        "00000293453a9babc24aaba35e55b3c79cd37702000000000000",
    ),
    ("ShareGroupCurrentMemberAssignment", "member epoch 6, 1 partition assigned"): (
        "00000000000600000005000293453a9babc24aaba35e55b3c79cd37702000000000000",
    ),
    ("ShareGroupStatePartitionMetadata", "0 initializing and 2 initialized partitions"): (
        """0000010293453a9babc24aaba35e55b3c79cd3770564617461030000000000000001000293453a9babc24aaba35e55b3c79cd377
        046f6c640000""",
    ),
    ("StreamsGroupMetadata", "group epoch 3"): (
        """000000000003000000000000000204000400000001011902156e756d2e7374616e6462792e7265706c6963617302310002040000
        0001030400000000""",
    ),
    ("StreamsGroupMemberMetadata", "client c at /h"): (
        "00000002720263032f6800000001000000010270ff02026b02760000",
        "00000002720263032f6800000001000000010270010268ffff0002026b02760000",
    ),
    ("StreamsGroupTargetAssignmentMetadata", "target assignment of epoch 3"): ("00000000000300",),
    ("StreamsGroupTargetAssignmentMember", "3 partitions assigned"): (
        "0000020230030000000000000001000102023102000000000000",
    ),
    ("StreamsGroupCurrentMemberAssignment", "member epoch 3, 2 partitions assigned"): (
        "0000000000030000000201020230030000000000000001010009030000000300000003010101010100",
    ),
    ("StreamsGroupTopology", "epoch 1 with 1 subtopology"): (
        """00000000000102023002056461746101020e612d732d6368616e67656c6f67000000020003020f636c65616e75702e706f6c6963
        7908636f6d7061637400000101020200000101000000""",
    ),
    ("TransactionLog", "Ongoing of producer 5000000000, epoch 7"): (
        """0000000000012a05f20000070000ea6001000000010004646174610000000200000000000000030000018bcfe568000000018bcf
        e56418""",
        """0001000000012a05f20000070000ea6001020564617461030000000000000003000000018bcfe568000000018bcfe56418040008
        0000000000000004010800000000000000060202000203020000""",
    ),
    ("TransactionLog", "Empty of producer 1, epoch 0"): (
        "0001000000000000000100000000000000000000000000000000000000000000000000",
    ),
    ("ShareSnapshot", "snapshot epoch 1, start offset 40, 1 state batch"): (
        """000000000001000000020000000300000000000000280000018bcfe568000000018bcfe568010200000000000000280000000000
        0000310000010001000400000002""",
    ),
    ("ShareUpdate", "snapshot epoch 1, start offset 45, 0 state batches"): (
        "00000000000100000003000000000000002d0100",
    ),
}
"""Values by message and the text of the state that they give."""

KEY_BYTES = {message: bytes.fromhex(key) for message, (key, _) in KEYS.items()}
VALUES = [
    (message, bytes.fromhex(value), KEYS[message][1], state)
    for (message, state), values in STATES.items()
    for value in values
]


def offset_key(group: str, topic: str, partition: int, version: int = 1) -> bytes:
    """Return an ``OffsetCommitKey``."""
    names = b"".join(len(name.encode()).to_bytes(2) + name.encode() for name in (group, topic))
    return version.to_bytes(2) + names + partition.to_bytes(4)


def offset_value(offset: int) -> bytes:
    """Return an ``OffsetCommitValue`` of version 3."""
    return bytes.fromhex("0003") + offset.to_bytes(8) + bytes.fromhex("ffffffff00000000018bcfe56800")
