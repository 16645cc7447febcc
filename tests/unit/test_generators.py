"""Generators of operations, without a broker: the same contexts give the same steps."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from harness.schedules import generators
from harness.schedules.generators import Context, Generator, Situation, each, fixed, mix, stagger, until
from harness.schedules.operations import Die, Inject, Operation, Write
from harness.schedules.schedule import Step


def by(process: str) -> Generator:
    return each(lambda _: Die(process))


PENDING, DONE = "pending", "done"


def drawn(generator: Generator, count: int = 10_000, context: Context | None = None) -> tuple[list[Step], str]:
    """Draw until there is nothing more, at the times that the steps ask for; return how it ended, too."""
    context, steps, rest = context or Context(seed=1), list[Step](), [generator]
    while rest and len(steps) < count:
        step, after = rest.pop()(context)
        rest += [after] if after else []
        if step is None:
            break
        steps.append(step)
        situation = context.situation.after(step)
        context = replace(context, now_s=max(context.now_s, step.at_s), drawn=len(steps), situation=situation)
    return steps, PENDING if rest else DONE


def processes(steps: list[Step]) -> list[str]:
    return [step.operation.process for step in steps]


def test_a_busy_process_is_waited_for() -> None:
    busy = Context(seed=1, busy=frozenset({"a"}))
    assert drawn(by("a"), context=busy) == ([], PENDING)
    assert drawn(fixed(Step(0.0, Die("a"))), context=busy) == ([], PENDING)


def test_a_schedule_is_drawn_as_it_is_but_for_what_would_begin_after_a_time_limit() -> None:
    steps = [Step(0.5, Die("a")), Step(0.2, Die("b")), Step(7.0, Die("a"))]
    assert drawn(fixed(*steps)) == (steps, DONE)
    assert drawn(until(5.0, fixed(Step(4.9, Die("a")), Step(5.1, Die("a")))))[0] == [Step(4.9, Die("a"))]


def test_a_mix_goes_by_its_weights_and_leaves_out_what_is_done_or_has_nothing_now() -> None:
    names = processes(drawn(mix((3, by("a")), (1, by("b"))), count=2000)[0])
    assert 1400 < names.count("a") < 1600
    steps, end = drawn(mix((1, fixed(*[Step(0.0, Die("a"))] * 2)), (1, fixed(*[Step(0.0, Die("b"))] * 3))))
    assert (sorted(processes(steps)), end) == (["a", "a", "b", "b", "b"], DONE)
    mixed = mix((1000, by("a")), (1, by("b")))
    assert set(processes(drawn(mixed, 50, Context(seed=1, busy=frozenset({"a"})))[0])) == {"b"}
    assert drawn(mixed, context=Context(seed=1, busy=frozenset({"a", "b"}))) == ([], PENDING)


def test_staggered_operations_come_at_a_rate_and_generators_side_by_side_go_by_time() -> None:
    times = [step.at_s for step in drawn(until(100.0, stagger(0.5, by("a"))))[0]]
    assert 180 < len(times) < 220
    assert times == sorted(times)
    gaps = [after - before for before, after in pairwise(times)]
    assert max(gaps) <= 1.0
    assert min(gaps) < 0.1
    paces = (("a", 0.1), ("b", 1.0))
    steps, end = drawn(generators.together(*(until(10.0, stagger(gap_s, by(name))) for name, gap_s in paces)))
    assert end == DONE
    assert [step.at_s for step in steps] == sorted(step.at_s for step in steps)
    assert 80 < processes(steps).count("a") < 120
    assert 5 < processes(steps).count("b") < 20


def test_a_late_operation_does_not_slow_the_others_down() -> None:
    generator: Generator = stagger(0.01, by("a"))
    steps, context = 0, Context(seed=1)
    while context.now_s < 20:
        answer, after = generator(replace(context, drawn=steps))
        assert answer is not None
        assert after is not None
        if answer.at_s > context.now_s:
            # The generator is asked only now and then, and once not for ten seconds: that is not made up for.
            pause_s = 10.0 if 5 < context.now_s < 6 else 0.05
            context = replace(context, now_s=context.now_s + pause_s)
            continue
        steps, generator = steps + 1, after
    assert 1000 < steps < 1300


def test_a_phase_begins_once_everybody_is_idle() -> None:
    two = generators.phases(fixed(*[Step(0.0, Die("a"))] * 2), fixed(Step(0.0, Die("b"))))
    assert (processes(drawn(two)[0]), drawn(two)[1]) == (["a", "a", "b"], DONE)
    after_first = generators.phases(fixed(), fixed(Step(0.0, Die("b"))))
    assert drawn(after_first, context=Context(seed=1, busy=frozenset({"c"}))) == ([], PENDING)


@pytest.mark.parametrize(
    "made", [lambda: mix((1, by("a")), (2, by("b"))), lambda: stagger(0.3, mix((1, by("a")), (2, by("b"))))]
)
def test_the_same_seed_draws_the_same(made: Callable[[], Generator]) -> None:
    first, again = (drawn(made(), 200)[0] for _ in range(2))
    assert first == again
    assert drawn(made(), 200, Context(seed=2))[0] != first


def test_a_situation_follows_from_what_was_drawn() -> None:
    situation = Situation(frozenset({"t"}))
    operations: list[Operation] = [Write("t", "k"), Write("p", "k"), Inject("kill", 2)]
    for at_s, operation in enumerate(operations):
        situation = situation.after(Step(float(at_s), operation))
    assert (situation.records_of("t"), situation.records_of("p")) == (1, 0)
    assert situation.faults == {("kill", 2): 2.0}
    assert situation.after(Step(3.0, Die("t"))).open == {}
