"""Generators of random schedules, composed as in Jepsen (``jepsen.generator.pure``): pure functions of a context.

A player asks a generator for the next operation with a `Context`: the seed, the time, the busy processes, and the
operations so far. The generator answers with a step, or None where there is none now, and with the generator for the
next question, or None where there is no further step. Generators have no other memory, and `Context.random` is their
only randomness: the same contexts give the same steps. Brokers play the steps while they are drawn.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol, TypeAlias

from harness.schedules.operations import Die, End, Heal, Inject, Operation, SendOffset, Write
from harness.schedules.schedule import Step

MOST_BEHIND_S: Final = 1.0
"""Operations that are later than this are left out, rather than begun all at once."""


class TransactionProgress(NamedTuple):
    """The number of records in an open transaction, and when it began."""

    records: int
    since_s: float


@dataclass(frozen=True)
class Situation:
    """The effects of operations. ``writers``: transactional clients. ``faults``: (name, broker), since when."""

    writers: frozenset[str] = frozenset()
    open: Mapping[str, TransactionProgress] = field(default_factory=lambda: MappingProxyType({}))
    faults: Mapping[tuple[str, int], float] = field(default_factory=lambda: MappingProxyType({}))

    def after(self, step: Step) -> "Situation":
        """Return the situation after a step."""
        match step.operation:
            case Write(process=process) | SendOffset(process=process) if process in self.writers:
                records, since_s = self.open.get(process, (0, step.at_s))
                return replace(self, open={**self.open, process: TransactionProgress(records + 1, since_s)})
            case End(process=process) | Die(process=process):
                return replace(self, open={name: txn for name, txn in self.open.items() if name != process})
            case Inject(fault, broker):
                return replace(self, faults={**self.faults, (fault, broker): step.at_s})
            case Heal(fault, broker):
                return replace(self, faults={key: s for key, s in self.faults.items() if key != (fault, broker)})
        return self

    def records_of(self, process: str) -> int:
        """Return the number of records in a client's open transaction."""
        return self.open[process].records if process in self.open else 0


@dataclass(frozen=True)
class Context:
    """The input of a generator. ``busy``: processes that take no operation now; ``drawn``: the number of operations."""

    seed: int = 0
    now_s: float = 0.0
    drawn: int = 0
    busy: frozenset[str] = frozenset()
    situation: Situation = field(default_factory=Situation)

    def random(self, purpose: str) -> Random:
        """Return a new source of randomness, one for each purpose and operation."""
        return Random(f"soak {self.seed} {self.drawn} {purpose}")  # noqa: S311  (reproducible, no secret)


class Generator(Protocol):
    """Anything that draws operations."""

    def __call__(self, context: Context, /) -> "Drawn":
        """Return the next step, and the generator for the time after that step."""


Drawn: TypeAlias = "tuple[Step | None, Generator | None]"


def each(choose: Callable[[Context], Operation | None]) -> Generator:
    """Draw the results of a function, without an end; none now if it returns None or the process is busy."""

    def draw(context: Context) -> Drawn:
        operation = choose(context)
        if operation is None or operation.process in context.busy:
            return None, draw
        return Step(context.now_s, operation), draw

    return draw


def fixed(*steps: Step) -> Generator:
    """Draw the steps of a schedule in this order, each once its process is not busy."""

    def draw(context: Context) -> Drawn:
        if steps and steps[0].operation.process in context.busy:
            return None, draw
        return (steps[0], fixed(*steps[1:])) if steps else (None, None)

    return draw


def mix(*choices: tuple[float, Generator]) -> Generator:
    """Choose at random among generators, by weight; generators without a step now are skipped."""

    def draw(context: Context) -> Drawn:
        random, rest, untried = context.random("mix"), dict(enumerate(choices)), list(range(len(choices)))
        step: Step | None = None
        while untried and step is None:
            (at,) = random.choices(untried, [choices[number][0] for number in untried])
            untried.remove(at)
            weight, generator = choices[at]
            step, after = generator(context)
            if after is None:
                del rest[at]
            elif step is not None:
                rest[at] = weight, after
        return step, mix(*rest.values()) if rest else None

    return draw


def until(end_s: float, inner: Generator) -> Generator:
    """Draw the operations of another generator that begin before a time, in seconds since the round began."""

    def draw(context: Context) -> Drawn:
        step, after = inner(context) if context.now_s < end_s else (None, None)
        if step is not None and step.at_s >= end_s:
            return None, None
        return step, after and until(end_s, after)

    return draw


def stagger(period_s: float, inner: Generator, next_s: float = 0.0) -> Generator:
    """Delay the operations of another generator to random times: each ``period_s`` on average, at most twice that."""

    def draw(context: Context) -> Drawn:
        step, after = inner(context)
        if step is None:
            return None, after and stagger(period_s, after, next_s)
        at_s = max(step.at_s, next_s)
        # Counted from the time when it was due, so that a late operation does not slow the others down.
        due_s = next_s + context.random("stagger").uniform(0, 2) * period_s
        return replace(step, at_s=at_s), after and stagger(period_s, after, max(due_s, at_s - MOST_BEHIND_S))

    return draw


def together(*parts: Generator) -> Generator:
    """Draw the earliest step of any of several generators (Jepsen's ``any``); only its generator advances."""

    def draw(context: Context) -> Drawn:
        drawn = [part(context) for part in parts]
        steps = [(step.at_s, at) for at, (step, _) in enumerate(drawn) if step is not None]
        earliest = min(steps)[1] if steps else None
        nexts = [parts[at] if step and at != earliest else after for at, (step, after) in enumerate(drawn)]
        rest = [part for part in nexts if part is not None]
        return drawn[earliest][0] if earliest is not None else None, together(*rest) if rest else None

    return draw


def phases(*parts: Generator) -> Generator:
    """Draw from generators one after another; the next begins when every process is idle."""

    def draw(context: Context) -> Drawn:
        rest = parts
        while rest:
            step, after = rest[0](context)
            if step is not None or after is not None:
                return step, phases(after or fixed(), *rest[1:])
            if context.busy and len(rest) > 1:
                return None, phases(*rest)
            rest = rest[1:]
        return None, None

    return draw
