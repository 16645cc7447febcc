"""Conditions that a player waits for, and snapshots that it takes."""

from harness.schedules.operations.operation import operation

PLAYER = "player"
"""The process of the player of a schedule."""


@operation("wait until missed records are removed on every replica that stays up")
class UntilRemoved:
    """Tombstones and markers that a broker missed are removed on every replica that stays up."""

    process: str = PLAYER


@operation("wait until every replica is in sync")
class UntilInSync:
    """Every replica is in the ISR."""

    process: str = PLAYER


@operation("snapshot {name}")
class TakeSnapshot:
    """Copies of all replicas."""

    name: str
    process: str = PLAYER
