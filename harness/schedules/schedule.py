"""A schedule: operations in order, each with the time at which it begins, and where it comes from; as a file.

``{"schema": 1, "finding": "stuck-lso", "target": "sim-kafka", "case": "…", "plan": {…}, "steps": [{"do": …}]}``

The catalog's scenarios, rounds of a soak, random schedules, witnesses of walks, and shrunk rounds are schedules. Their
files have this one format. A player of schedules declares the operations that it supports, and rejects all others
before it starts.
"""

import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final, get_type_hints

from harness.errors import UsageError, raised_as
from harness.json_codec import from_json
from harness.kafka_api import TopicPartition
from harness.schedules.operations import CLASSES, COMMIT, OUTCOMES, Heal, Inject, Operation, name_of


@dataclass(frozen=True)
class RoundTopic:
    """A topic of a round."""

    name: str
    partitions: int
    settings: Mapping[str, str]


@dataclass(frozen=True)
class RoundClient:
    """A client process. Two of them may have the same ``transactional_id``.

    ``library``: its client library. ``home``: the partitions that it writes to; empty for all. ``patience_s``: how
    long its transactions stay open at least.
    """

    name: str
    library: str
    transactional_id: str | None = None
    is_idempotent: bool = False
    home: tuple[TopicPartition, ...] = ()
    patience_s: float = 0.0


@dataclass(frozen=True)
class RoundPlan:
    """A round before it is played. ``seed``: also of what the cluster leaves to chance, where it is simulated.

    ``lasts_s``: faults are healed no sooner than that after its beginning. ``filled``: the partitions that the filler
    writes to; empty for all.
    """

    seed: int = 0
    topics: tuple[RoundTopic, ...] = ()
    clients: tuple[RoundClient, ...] = ()
    brokers: tuple[int, ...] = (1, 2, 3)
    lasts_s: float = 0.0
    filled: tuple[TopicPartition, ...] = ()

    @property
    def partitions(self) -> list[TopicPartition]:
        """Every partition."""
        return [(topic.name, number) for topic in self.topics for number in range(topic.partitions)]

    @property
    def replicas(self) -> dict[TopicPartition, tuple[int, ...]]:
        """Every partition with its brokers, another leader each."""
        count = len(self.brokers)
        return {tp: self.brokers[at % count :] + self.brokers[: at % count] for at, tp in enumerate(self.partitions)}

    @property
    def transactional(self) -> frozenset[str]:
        """The clients that write in transactions."""
        return frozenset(client.name for client in self.clients if client.transactional_id)


def plan_of(content: Mapping[str, Any], source: str) -> RoundPlan:
    """Return the plan of a JSON object. Raises `UsageError` for anything else, and for a plan without a member."""
    with raised_as(UsageError, f"{source}: the plan is wrong", ValueError):
        plan = from_json(RoundPlan, content)
    if missing := [field.name for field in fields(RoundPlan) if field.name not in content]:
        raise UsageError(f"{source}: the plan is wrong: it has no {', '.join(missing)}")
    return plan


SCHEMA: Final = 1
DO: Final = "do"
AT_S: Final = "at_s"
NO_PLAN: Final = RoundPlan()


@dataclass(frozen=True)
class Step:
    """An operation, and when it is to begin: in seconds since the schedule began, and after the steps before it."""

    at_s: float
    operation: Operation


@dataclass(frozen=True)
class Schedule:
    """Operations that lead to a ``finding`` on a ``target``, if any; ``case``: of a model.

    ``plan``: its topics and clients; empty for a schedule of one partition that names neither.
    """

    steps: tuple[Step, ...]
    finding: str = ""
    target: str = ""
    case: str = ""
    plan: RoundPlan = NO_PLAN

    @property
    def operations(self) -> tuple[Operation, ...]:
        """The operations without their times."""
        return tuple(step.operation for step in self.steps)


def in_order(*operations: Operation) -> tuple[Step, ...]:
    """Return steps, each of which begins as soon as that is possible."""
    return tuple(Step(0.0, operation) for operation in operations)


@dataclass(frozen=True)
class SchedulePlayer:
    """A command, or a model, that plays schedules. ``faults``: the faults that it supports; None for any fault."""

    name: str
    operations: frozenset[type]
    faults: frozenset[str] | None = None

    def supports(self, operation: Operation) -> bool:
        """Return whether the player can perform an operation."""
        has_fault = not isinstance(operation, Inject | Heal) or self.faults is None or operation.fault in self.faults
        return type(operation) in self.operations and has_fault


def unsupported(schedule: Schedule, player: SchedulePlayer) -> str | None:
    """Return the first step that a player does not support, and why; None if it supports the whole schedule."""
    for number, operation in enumerate(schedule.operations, 1):
        if not player.supports(operation):
            is_fault = type(operation) in player.operations
            names = sorted((player.faults or ()) if is_fault else [cls.__name__ for cls in player.operations])
            supported = f"the {'faults' if is_fault else 'operations'} {', '.join(names)}"
            return f"step {number}, '{operation}', is not supported by {player.name}, which supports {supported}"
    return None


def schedule_json(schedule: Schedule, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return a schedule as a JSON object, with ``more`` fields about how it was played."""
    return {
        "schema": SCHEMA,
        "finding": schedule.finding,
        "target": schedule.target,
        "case": schedule.case,
        **(more or {}),
        **({} if schedule.plan == NO_PLAN else {"plan": asdict(schedule.plan)}),
        "steps": [{**({AT_S: step.at_s} if step.at_s else {}), **encode(step.operation)} for step in schedule.steps],
    }


def write_schedule(path: Path, schedule: Schedule, more: Mapping[str, Any] | None = None) -> None:
    """Write a schedule, a step a line. Raises `UsageError` where that cannot be."""
    content = schedule_json(schedule, more)
    steps = ",\n  ".join(json.dumps(step) for step in content.pop("steps"))
    head = json.dumps(content, indent=1)[:-2]
    with raised_as(UsageError, f"{path} cannot be written", OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'{head},\n "steps": [\n  {steps}\n ]\n}}\n', encoding="utf-8")


def read_schedule(path: Path) -> Schedule:
    """Return the schedule in a file. Raises `UsageError` with the defect of the file."""
    return schedule_of(read_content(path), str(path))


def read_content(path: Path) -> dict[str, Any]:
    """Return the JSON object in the file of a schedule. Raises `UsageError` for anything else."""
    with raised_as(UsageError, f"{path} cannot be read", OSError):
        text = path.read_bytes()
    with raised_as(UsageError, f"{path} is not JSON", ValueError):
        content = json.loads(text)
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise UsageError(f"{path} is not a schedule of this release: its schema is not {SCHEMA}")
    return content


def schedule_of(content: Mapping[str, Any], source: str) -> Schedule:
    """Return the schedule that `schedule_json` gave. Raises `UsageError` for anything else, with its ``source``."""
    steps = content.get("steps")
    if not isinstance(steps, list):
        raise UsageError(f"{source} is not a schedule: it has no list of steps")
    texts = {name: content.get(name) or "" for name in ("finding", "target", "case")}
    if wrong := [name for name, text in texts.items() if not isinstance(text, str)]:
        raise UsageError(f"{source} is not a schedule: {', '.join(wrong)} is not a text")
    plan = plan_of(content["plan"], source) if content.get("plan") else NO_PLAN
    return Schedule(
        tuple(step_of(step, f"{source}: step {at}") for at, step in enumerate(steps, 1)), **texts, plan=plan
    )


def step_of(content: Any, source: str) -> Step:
    """Return the step of a JSON object. Raises `UsageError` for anything else, with its ``source``."""
    members = content if isinstance(content, dict) else {}
    at_s = members.get(AT_S, 0.0)
    if isinstance(at_s, bool) or not isinstance(at_s, int | float) or not 0 <= at_s < float("inf"):
        raise UsageError(f"{source}: {AT_S} is not a time: {at_s!r}")
    return Step(float(at_s), decode({k: v for k, v in members.items() if k != AT_S} if members else content, source))


def encode(operation: Operation) -> dict[str, Any]:
    """Return an operation as a JSON object."""
    values = vars(operation)
    changed = {field.name: values[field.name] for field in fields(operation) if values[field.name] != field.default}  # type: ignore[arg-type]
    return {DO: name_of(type(operation)), **changed}


def decode(content: Any, source: str) -> Operation:
    """Return the operation of a JSON object. Raises `UsageError` for anything else, with its ``source``."""
    cls = CLASSES.get(str(content.get(DO))) if isinstance(content, dict) else None
    if cls is None:
        raise UsageError(f"{source}: {content!r} is not an operation; give one of {', '.join(sorted(CLASSES))}")
    values = {name: tuple(v) if isinstance(v, list) else v for name, v in content.items() if name != DO}
    types = get_type_hints(cls)
    missing = {field.name for field in fields(cls) if field.default is MISSING} - values.keys()
    wrong = {name for name, value in values.items() if not _has_type(value, types.get(name))}
    if values.get("outcome", COMMIT) not in OUTCOMES:
        wrong.add("outcome")
    if missing | wrong:
        names = ", ".join(sorted(missing | wrong))
        raise UsageError(f"{source}: {content[DO]}: missing, unknown, or of a wrong type or value: {names}")
    operation: Operation = cls(**values)
    return operation


def _has_type(value: Any, expected: Any) -> bool:
    """Return whether a value has exactly the type of its field: a plain type, or a tuple of plain items."""
    of_items = getattr(expected, "__args__", ())
    if of_items:
        return isinstance(value, tuple) and all(type(item) is of_items[0] for item in value)
    return type(value) is expected
