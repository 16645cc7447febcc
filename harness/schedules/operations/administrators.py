"""Operations of administrators: on records, topics, replicas and leaders."""

from harness.schedules.operations.operation import operation

ADMIN = "admin"
"""The process of administrators."""


@operation(
    lambda deletion: (
        f"records{f' in {deletion.topic}-{deletion.partition}' * bool(deletion.topic)} are deleted but the last"
        f" {deletion.keeps}"
    )
)
class DeleteRecords:
    """DeleteRecords: all records of a partition but the last ``keeps`` offsets below the high watermark."""

    keeps: int
    topic: str = ""
    partition: int = 0
    process: str = ADMIN


@operation("{topic} is deleted and created again")
class RecreateTopic:
    """A topic is deleted, and created again with the same name, replicas and settings."""

    topic: str
    process: str = ADMIN


@operation("{topic} gets {setting}={value}")
class AlterTopic:
    """A setting of a topic is changed."""

    topic: str
    setting: str
    value: str
    process: str = ADMIN


@operation("{broker} leads")
class ElectLeader:
    """Another replica in sync becomes the leader."""

    broker: int
    process: str = ADMIN


@operation("{broker} is added")
class AddReplica:
    """A broker without a log of the partition gets a replica."""

    broker: int
    process: str = ADMIN


@operation("{broker} is unassigned")
class Unassign:
    """A broker's replica is removed; a broker that is down still has its log."""

    broker: int
    process: str = ADMIN


@operation("{broker} is assigned again")
class AssignAgain:
    """A broker whose replica was removed gets it back."""

    broker: int
    process: str = ADMIN
