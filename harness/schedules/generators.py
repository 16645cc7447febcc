"""Generators of random schedules, composed as in Jepsen (``jepsen.generator.pure``): pure functions of a context.

A player asks a generator for the next operation with a `Context`: the seed, the time, the busy processes, and the
operations so far. The generator answers with a step or with `Nothing`, and with the generator for the next question.
Generators have no other memory, and `Context.random` is their only randomness: the same contexts give the same steps.
Rounds of a soak are drawn while brokers play them, schedules of ``conform`` while a model does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from random import Random
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeAlias

from harness.schedules.operations import Die, End, Heal, Inject, Operation, SendOffset, Write
from harness.schedules.schedule import Step, in_order

MOST_BEHIND_S: Final = 1.0
"""Operations that are later than this are left out, rather than begun all at once."""


@dataclass(frozen=True)
class TransactionProgress:
    """The number of records in an open transaction, and when it began."""

    records: int
    since_s: float


@dataclass(frozen=True)
class Situation:
    """The effects of the operations so far. ``writers``: transactional clients; ``open``: their open transactions.

    ``faults``: the active faults, as (name, broker), and when they began.
    """

    writers: frozenset[str] = frozenset()
    open: Mapping[str, TransactionProgress] = field(default_factory=lambda: MappingProxyType({}))
    faults: Mapping[tuple[str, int], float] = field(default_factory=lambda: MappingProxyType({}))

    def after(self, step: Step) -> Situation:
        """Return the situation after a step."""
        match step.operation:
            case Write(process=process) | SendOffset(process=process) if process in self.writers:
                before = self.open.get(process, TransactionProgress(0, step.at_s))
                return replace(self, open={**self.open, process: replace(before, records=before.records + 1)})
            case End(process=process) | Die(process=process):
                return replace(self, open={name: txn for name, txn in self.open.items() if name != process})
            case Inject(fault=fault, broker=broker):
                return replace(self, faults={**self.faults, (fault, broker): step.at_s})
            case Heal(fault=fault, broker=broker):
                return replace(self, faults={key: s for key, s in self.faults.items() if key != (fault, broker)})
        return self

    def records_of(self, process: str) -> int:
        """Return the number of records in a client's open transaction."""
        return self.open[process].records if process in self.open else 0


class Nothing(Enum):
    """The answer of a generator without a step: none now, or none ever again."""

    PENDING = "pending"
    DONE = "done"


Answer: TypeAlias = Step | Nothing


@dataclass(frozen=True)
class Context:
    """The input of a generator. ``busy``: processes that take no operation now; ``drawn``: the number of operations.

    ``world``: the model that plays the schedule, if any; ``stream``: the source of all its randomness.
    """

    seed: int = 0
    now_s: float = 0.0
    drawn: int = 0
    busy: frozenset[str] = frozenset()
    situation: Situation = field(default_factory=Situation)
    world: Any = None
    stream: Random | None = None

    def random(self, purpose: str) -> Random:
        """Return a source of randomness: the ``stream``, or a new source for each purpose and operation."""
        return self.stream or Random(f"soak {self.seed} {self.drawn} {purpose}")  # noqa: S311  (reproducible, no secret)


class Generator(Protocol):
    """Anything that draws operations."""

    def draw(self, context: Context) -> tuple[Answer, Generator]:
        """Return the next step, and the generator for the time after that step."""


def operations(generator: Generator, context: Context) -> Iterator[Operation]:
    """Yield the operations of a generator; the caller plays each on the context's model before the next is drawn."""
    while True:
        answer, generator = generator.draw(context)
        if not isinstance(answer, Step):
            return
        yield answer.operation


@dataclass(frozen=True)
class Each:
    """The results of a function, without an end; pending if the function returns None or its process is busy."""

    choose: Callable[[Context], Operation | None]

    def draw(self, context: Context) -> tuple[Answer, Generator]:
        """Call the function."""
        operation = self.choose(context)
        if operation is None or operation.process in context.busy:
            return Nothing.PENDING, self
        return Step(context.now_s, operation), self


@dataclass(frozen=True)
class Fixed:
    """The steps of a schedule, in this order."""

    steps: tuple[Step, ...]

    def draw(self, context: Context) -> tuple[Answer, Generator]:
        """Return the next step if its process is idle."""
        if not self.steps:
            return Nothing.DONE, self
        step, *rest = self.steps
        if step.operation.process in context.busy:
            return Nothing.PENDING, self
        return step, Fixed(tuple(rest))


def fixed(*steps: Operation) -> Fixed:
    """Return a generator of these operations, each as soon as possible."""
    return Fixed(in_order(*steps))


@dataclass(frozen=True)
class Mix:
    """Random choices among several generators, by weight; generators without a step now are skipped."""

    choices: tuple[tuple[float, Generator], ...]

    def draw(self, context: Context) -> tuple[Answer, Generator]:
        """Ask one generator after another in random order; drop those that are done."""
        random, choices = context.random("mix"), list(self.choices)
        untried, done = list(range(len(choices))), set[int]()
        answer: Answer = Nothing.PENDING
        while untried and not isinstance(answer, Step):
            (at,) = random.choices(untried, [choices[number][0] for number in untried])
            untried.remove(at)
            weight, generator = choices[at]
            answer, after = generator.draw(context)
            if isinstance(answer, Step):
                choices[at] = weight, after
            elif answer is Nothing.DONE:
                done.add(at)
        rest = tuple(choice for number, choice in enumerate(choices) if number not in done)
        if not isinstance(answer, Step):
            answer = Nothing.PENDING if rest else Nothing.DONE
        return answer, Mix(rest)


@dataclass(frozen=True)
class Limit:
    """The first ``count`` operations of another generator."""

    count: int
    inner: Generator

    def draw(self, context: Context) -> tuple[Answer, Generator]:
        """Count down with each step."""
        if self.count <= 0:
            return Nothing.DONE, self
        answer, after = self.inner.draw(context)
        return answer, Limit(self.count - isinstance(answer, Step), after)


@dataclass(frozen=True)
class Until:
    """The operations of another generator that begin before a time, in seconds since the round began."""

    end_s: float
    inner: Generator

    def draw(self, context: Context) -> tuple[Answer, Generator]:
        """End with the first step that would begin later."""
        if context.now_s >= self.end_s:
            return Nothing.DONE, self
        answer, after = self.inner.draw(context)
        if isinstance(answer, Step) and answer.at_s >= self.end_s:
            return Nothing.DONE, self
        return answer, Until(self.end_s, after)


@dataclass(frozen=True)
class Stagger:
    """The operations of another generator at random times: each ``period_s`` on average, at most twice that apart."""

    period_s: float
    inner: Generator
    next_s: float = 0.0

    def draw(self, context: Context) -> tuple[Answer, Generator]:
        """Delay the step until the time that was drawn with the previous step."""
        answer, after = self.inner.draw(context)
        if not isinstance(answer, Step):
            return answer, replace(self, inner=after)
        at_s = max(answer.at_s, self.next_s)
        # Counted from the time when it was due, so that a late operation does not slow the others down.
        due_s = self.next_s + context.random("stagger").uniform(0, 2) * self.period_s
        return replace(answer, at_s=at_s), Stagger(self.period_s, after, max(due_s, at_s - MOST_BEHIND_S))


@dataclass(frozen=True)
class Together:
    """Several generators side by side: the earliest step of any generator (Jepsen's ``any``)."""

    parts: tuple[Generator, ...]

    def draw(self, context: Context) -> tuple[Answer, Generator]:
        """Ask all generators; only the generator of the earliest step advances."""
        answers = [part.draw(context) for part in self.parts]
        steps = [(answer.at_s, at) for at, (answer, _) in enumerate(answers) if isinstance(answer, Step)]
        earliest = min(steps)[1] if steps else None
        rest = tuple(
            after if at == earliest or earliest is None else self.parts[at]
            for at, (answer, after) in enumerate(answers)
            if answer is not Nothing.DONE
        )
        if earliest is None:
            return (Nothing.PENDING if rest else Nothing.DONE), Together(rest)
        return answers[earliest][0], Together(rest)


@dataclass(frozen=True)
class Phases:
    """Generators one after another; the next begins when every process is idle."""

    parts: tuple[Generator, ...]

    def draw(self, context: Context) -> tuple[Answer, Generator]:
        """Ask the first generator that is not done."""
        parts = self.parts
        while parts:
            answer, after = parts[0].draw(context)
            if answer is not Nothing.DONE:
                return answer, Phases((after, *parts[1:]))
            if context.busy and len(parts) > 1:
                return Nothing.PENDING, Phases(parts)
            parts = parts[1:]
        return Nothing.DONE, Phases(())
