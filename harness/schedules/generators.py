"""Generators of operations as data, composed as in Jepsen (``jepsen.generator.pure``), pure functions of a context.

A generator is asked for its next operation in a `Context`: the seed, the time, who is idle, and what was drawn so far.
It answers with a step, or with `Nothing`, and with the generator that is to be asked next. Nothing is remembered
elsewhere, and nothing is random but by `Context.random`: the same contexts give the same steps.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from random import Random
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from harness.schedules.schedule import Step
from harness.schedules.situation import Situation

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.schedules.operations.operation import Operation


MOST_BEHIND_S: Final = 1.0
"""Operations that are late by more than that are left out rather than begun all at once."""


class Nothing(Enum):
    """The answer of a generator that has no step: none now, or none ever again."""

    PENDING = "pending"
    DONE = "done"


Answer: TypeAlias = Step | Nothing


@dataclass(frozen=True)
class Context:
    """What a generator may know. ``busy``: processes that take no operation now; ``drawn``: operations so far."""

    seed: int
    now_s: float = 0.0
    drawn: int = 0
    busy: frozenset[str] = frozenset()
    situation: Situation = field(default_factory=Situation)

    def random(self, purpose: str) -> Random:
        """Return a source of randomness for a purpose, anew for each operation."""
        return Random(f"soak {self.seed} {self.drawn} {purpose}")  # noqa: S311  (to be repeated, nothing secret)


class Generator(Protocol):
    """Anything that draws operations."""

    def draw(self, context: Context) -> tuple[Answer, Generator]:
        """Return the next step, and the generator to ask once that step is taken."""
        ...


@dataclass(frozen=True)
class Each:
    """Operations of a function, without an end; pending where the function has none or its process is busy."""

    choose: Callable[[Context], Operation | None]

    def draw(self, context: Context) -> tuple[Answer, Generator]:
        """Ask the function."""
        operation = self.choose(context)
        if operation is None or operation.process in context.busy:
            return Nothing.PENDING, self
        return Step(context.now_s, operation), self


@dataclass(frozen=True)
class Fixed:
    """Steps that are given, in this order: a schedule."""

    steps: tuple[Step, ...]

    def draw(self, context: Context) -> tuple[Answer, Generator]:
        """Return the next one once its process is idle."""
        if not self.steps:
            return Nothing.DONE, self
        step, *rest = self.steps
        if step.operation.process in context.busy:
            return Nothing.PENDING, self
        return step, Fixed(tuple(rest))


@dataclass(frozen=True)
class Mix:
    """One of several generators each time, by weight; one that has nothing now is passed over."""

    choices: tuple[tuple[float, Generator], ...]

    def draw(self, context: Context) -> tuple[Answer, Generator]:
        """Ask one of them; leave out those that are done."""
        random, left = context.random("mix"), list(range(len(self.choices)))
        choices = list(self.choices)
        done: set[int] = set()
        while left:
            (at,) = random.choices(left, [choices[one][0] for one in left])
            left.remove(at)
            answer, after = choices[at][1].draw(context)
            if isinstance(answer, Step):
                choices[at] = (choices[at][0], after)
                return answer, Mix(tuple(one for number, one in enumerate(choices) if number not in done))
            if answer is Nothing.DONE:
                done.add(at)
        rest = tuple(one for number, one in enumerate(choices) if number not in done)
        return (Nothing.PENDING if rest else Nothing.DONE), Mix(rest)


@dataclass(frozen=True)
class Limit:
    """At most so many operations of another generator."""

    count: int
    of: Generator

    def draw(self, context: Context) -> tuple[Answer, Generator]:
        """Count those that are taken."""
        if self.count <= 0:
            return Nothing.DONE, self
        answer, after = self.of.draw(context)
        return answer, Limit(self.count - isinstance(answer, Step), after)


@dataclass(frozen=True)
class Until:
    """Another generator's operations for as long as they begin before a time, in seconds since the round began."""

    end_s: float
    of: Generator

    def draw(self, context: Context) -> tuple[Answer, Generator]:
        """End with the first step that would begin later."""
        if context.now_s >= self.end_s:
            return Nothing.DONE, self
        answer, after = self.of.draw(context)
        if isinstance(answer, Step) and answer.at_s >= self.end_s:
            return Nothing.DONE, self
        return answer, Until(self.end_s, after)


@dataclass(frozen=True)
class Stagger:
    """Another generator's operations at random times: one in ``period_s`` on average, up to twice as far apart."""

    period_s: float
    of: Generator
    next_s: float = 0.0

    def draw(self, context: Context) -> tuple[Answer, Generator]:
        """Put the step off to the time that was drawn with the last one."""
        answer, after = self.of.draw(context)
        if not isinstance(answer, Step):
            return answer, replace(self, of=after)
        at_s = max(answer.at_s, self.next_s)
        # Counted from the time when it was due, so that a late operation does not slow the others down.
        due_s = self.next_s + context.random("stagger").uniform(0, 2) * self.period_s
        return replace(answer, at_s=at_s), Stagger(self.period_s, after, max(due_s, at_s - MOST_BEHIND_S))


@dataclass(frozen=True)
class Together:
    """Several generators side by side: the soonest step of any (Jepsen's ``any``)."""

    parts: tuple[Generator, ...]

    def draw(self, context: Context) -> tuple[Answer, Generator]:
        """Ask all, and keep the state of those whose step is not the soonest."""
        answers = [part.draw(context) for part in self.parts]
        steps = [(answer.at_s, at) for at, (answer, _) in enumerate(answers) if isinstance(answer, Step)]
        if not steps:
            rest = tuple(after for answer, after in answers if answer is not Nothing.DONE)
            return (Nothing.PENDING if rest else Nothing.DONE), Together(rest)
        soonest = min(steps)[1]
        rest = tuple(
            after if at == soonest else self.parts[at]
            for at, (answer, after) in enumerate(answers)
            if answer is not Nothing.DONE
        )
        return answers[soonest][0], Together(rest)


@dataclass(frozen=True)
class Phases:
    """Generators one after another; the next one begins once every process is idle."""

    parts: tuple[Generator, ...]

    def draw(self, context: Context) -> tuple[Answer, Generator]:
        """Ask the first that is not done."""
        parts = self.parts
        while parts:
            answer, after = parts[0].draw(context)
            if answer is not Nothing.DONE:
                return answer, Phases((after, *parts[1:]))
            if context.busy and len(parts) > 1:
                return Nothing.PENDING, Phases(parts)
            parts = parts[1:]
        return Nothing.DONE, Phases(())
