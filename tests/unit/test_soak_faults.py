"""Which faults are drawn beside each other: every fault of the package is drawn or listed, and a quorum stays."""

from dataclasses import replace

import pytest

from harness.schedules.generators import Context
from harness.schedules.operations import Heal, Inject
from harness.schedules.schedule import Step
from harness.soak.draw.plan import available
from harness.soak.draw.workload import MOST_AT_ONCE, choose_fault, why_not
from nemesis import FAULTS, SCRIPTS
from nemesis.fault import ON_ASSIGNMENT, ON_LINKS

BROKERS = (1, 2, 3)
DRAWN, LEFT_OUT = available((), lambda _: None)


def test_every_fault_is_drawn_or_listed_with_the_reason() -> None:
    assert FAULTS.keys() | SCRIPTS.keys() == DRAWN.keys() | LEFT_OUT.keys()
    assert not DRAWN.keys() & LEFT_OUT.keys()
    assert all(LEFT_OUT.values())


@pytest.mark.parametrize(
    ("fault", "broker", "active", "reason"),
    [
        ("kill", 2, [], None),
        ("kill", 2, [("kill", 2)], "it is active"),
        ("kill", 2, [("pause", 2)], "broker 2 is out of the ISR"),
        ("kill", 3, [("pause", 2)], "a quorum of controllers has to stay"),
        ("lossy", 3, [("kill", 2)], None),
        ("slow", 3, [("lossy", 2)], "only one of links at a time"),
        ("lead", 1, [("unassign", 3)], "only one of assignment at a time"),
        ("unassign", 2, [("kill", 2)], None),
        ("late-cleaner", 2, [("kill", 2)], "broker 2 is out of the ISR"),
        ("clock-skew", 1, [("kill", 2), ("lossy", 1), ("unassign", 3), ("throttle", 3)], "4 faults are active"),
    ],
)
def test_what_cannot_be_combined(fault: str, broker: int, active: list[tuple[str, int]], reason: str | None) -> None:
    assert why_not(FAULTS[fault], broker, active, BROKERS, FAULTS) == reason


def test_faults_overlap_and_a_quorum_stays_whatever_is_drawn() -> None:
    choose, context = choose_fault(DRAWN, BROKERS), Context(seed=3)
    most, names = 0, set[str]()
    for number in range(3000):
        context = replace(context, drawn=number, now_s=float(number))
        if (operation := choose(context)) is None:
            continue
        assert isinstance(operation, Inject | Heal)
        names.add(operation.fault)
        context = replace(context, situation=context.situation.after(Step(context.now_s, operation)))
        active = context.situation.faults
        assert sum(FAULTS[name].leaves_isr for name, _ in active) <= 1
        for group in (ON_LINKS, ON_ASSIGNMENT):
            assert sum(FAULTS[name].alone_in == group for name, _ in active) <= 1
        most = max(most, len(active))
    assert most == MOST_AT_ONCE
    assert names == DRAWN.keys()


def test_a_fault_lasts_for_a_while() -> None:
    choose, context = choose_fault(DRAWN, BROKERS), Context(seed=1)
    context = replace(context, situation=context.situation.after(Step(10.0, Inject("kill", 2))))
    for now_s, ends in ((13.9, False), (14.0, True)):
        drawn = [choose(replace(context, drawn=number, now_s=now_s)) for number in range(200)]
        assert (Heal("kill", 2) in drawn) is ends


def test_what_a_target_or_a_host_lacks_is_listed() -> None:
    drawn, left_out = available({"kill"}, lambda needs: f"no {', '.join(needs)}" if "clock" in str(needs) else None)
    assert "kill" not in drawn
    assert left_out["kill"] == "not supported by this target"
    assert left_out["clock-skew"].startswith("no a separate clock")
    assert drawn.keys() | left_out.keys() == FAULTS.keys() | SCRIPTS.keys()
    assert "pause" in drawn
