"""What a round consists of: operations of clients, of an administrator and of the nemesis, as frozen dataclasses.

Each is one JSON object, ``{"do": "write", "process": "t1", …}``, and the other way round. Nothing here acts:
`harness.soak.play.clients`, `harness.soak.play.administrators` and `nemesis` do.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Final, TypeAlias, get_args

from harness.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

COMMIT, ABORT = "commit", "abort"
ADMIN, NEMESIS = "admin", "nemesis"
"""The processes of administrators and faults; every other process is a client."""


@dataclass(frozen=True)
class Write:
    """A record; a delete where ``deletes``. A transactional client that has no open transaction begins one with it."""

    process: str
    topic: str
    partition: int
    key: str
    deletes: bool = False

    def __str__(self) -> str:
        """Return it in words."""
        return f"{self.process} {'deletes' if self.deletes else 'puts'} {self.key} in {self.topic}-{self.partition}"


@dataclass(frozen=True)
class SendOffset:
    """A group's offset, committed as part of the client's transaction (KIP-447)."""

    process: str
    group: str
    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        """Return it in words."""
        return f"{self.process} sends offset {self.offset} of {self.topic}-{self.partition} for {self.group}"


@dataclass(frozen=True)
class End:
    """The end of the client's open transaction: commit or abort."""

    process: str
    outcome: str

    def __str__(self) -> str:
        """Return it in words."""
        return f"{self.process} {self.outcome}s"


@dataclass(frozen=True)
class Die:
    """The client is gone, and what it left open stays open. Its next operation is of a new client of the same id."""

    process: str

    def __str__(self) -> str:
        """Return it in words."""
        return f"{self.process} dies"


@dataclass(frozen=True)
class CommitOffset:
    """A group's offset, committed by a consumer that manages its partitions itself."""

    process: str
    group: str
    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        """Return it in words."""
        return f"{self.process} commits offset {self.offset} of {self.topic}-{self.partition} for {self.group}"


@dataclass(frozen=True)
class VisitGroup:
    """A member joins a group of a topic by a protocol, reads what it is given, and leaves."""

    process: str
    group: str
    topic: str
    protocol: str

    def __str__(self) -> str:
        """Return it in words."""
        return f"{self.process} visits {self.group} of {self.topic} ({self.protocol})"


@dataclass(frozen=True)
class DeleteGroup:
    """A group without members is deleted."""

    process: str
    group: str

    def __str__(self) -> str:
        """Return it in words."""
        return f"{self.process} deletes group {self.group}"


@dataclass(frozen=True)
class DeleteRecords:
    """DeleteRecords: all records of a partition go but the last ``keeps`` offsets below the high watermark."""

    topic: str
    partition: int
    keeps: int
    process: str = ADMIN

    def __str__(self) -> str:
        """Return it in words."""
        return f"records of {self.topic}-{self.partition} are deleted but the last {self.keeps}"


@dataclass(frozen=True)
class RecreateTopic:
    """A topic is deleted, and created again with the same name, replicas and settings."""

    topic: str
    process: str = ADMIN

    def __str__(self) -> str:
        """Return it in words."""
        return f"{self.topic} is deleted and created again"


@dataclass(frozen=True)
class AlterTopic:
    """A setting of a topic is changed."""

    topic: str
    setting: str
    value: str
    process: str = ADMIN

    def __str__(self) -> str:
        """Return it in words."""
        return f"{self.topic} gets {self.setting}={self.value}"


@dataclass(frozen=True)
class Inject:
    """A fault of `nemesis` begins on a broker."""

    fault: str
    broker: int
    process: str = NEMESIS

    def __str__(self) -> str:
        """Return it in words."""
        return f"{self.fault} begins on broker {self.broker}"


@dataclass(frozen=True)
class Heal:
    """It ends."""

    fault: str
    broker: int
    process: str = NEMESIS

    def __str__(self) -> str:
        """Return it in words."""
        return f"{self.fault} ends on broker {self.broker}"


Operation: TypeAlias = (
    Write
    | SendOffset
    | End
    | Die
    | CommitOffset
    | VisitGroup
    | DeleteGroup
    | DeleteRecords
    | RecreateTopic
    | AlterTopic
    | Inject
    | Heal
)

_BY_NAME: Final[dict[str, type]] = {
    "".join(f"-{c.lower()}" if c.isupper() else c for c in one.__name__).lstrip("-"): one for one in get_args(Operation)
}
_NAMES: Final = {one: name for name, one in _BY_NAME.items()}
_TYPES: Final[Mapping[str, type]] = {"str": str, "int": int, "bool": bool}
DO = "do"


@dataclass(frozen=True)
class Step:
    """An operation and when it is to begin, in seconds since the round began."""

    at_s: float
    operation: Operation

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON takes it."""
        return {"at_s": self.at_s, DO: _NAMES[type(self.operation)], **asdict(self.operation)}


def step_of(content: Any, source: str) -> Step:
    """Return the step that `Step.as_json` gave. Raises `UsageError` for anything else, with its ``source``."""
    kind = _BY_NAME.get(str(content.get(DO))) if isinstance(content, dict) else None
    if kind is None:
        raise UsageError(f"{source}: {content!r} is no operation; give one of {', '.join(_BY_NAME)}")
    at_s, given = content.get("at_s"), {name: value for name, value in content.items() if name not in {DO, "at_s"}}
    wanted = {field.name: _TYPES[str(field.type)] for field in fields(kind)}
    wrong = [name for name in wanted.keys() | given.keys() if type(given.get(name)) is not wanted.get(name)]
    if wrong or isinstance(at_s, bool) or not isinstance(at_s, int | float) or not 0 <= at_s < float("inf"):
        names = ", ".join(sorted(wrong)) or "at_s"
        raise UsageError(f"{source}: {content[DO]} has {names} missing, or of a wrong kind")
    return Step(float(at_s), kind(**given))
