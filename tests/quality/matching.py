"""Findings of an audit against what a case expects."""

from dataclasses import dataclass

from expected import Expected
from generate import Case


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The claims of a finding; ``candidates``: names that it cannot tell apart; ``brokers``: accused, or in dispute."""

    anomaly: str
    candidates: frozenset[str]
    topic: str
    partition: int
    brokers: frozenset[int]
    offset: int
    key: bytes | None
    effect: str

    @property
    def is_sure(self) -> bool:
        return not self.candidates


def complaints(case: Case, found: list[Found]) -> list[str]:
    """Return the errors of the findings on a case, a line each: missing, misnamed, or without cause."""
    missing = [
        f"{case.name}: not found: {wrong}"
        for wrong in case.expected
        if not any(_is(wrong, one) and (one.is_sure or not wrong.decided) for one in found)
    ]
    wrongs = (*case.expected, *case.tolerated)
    false = [f"{case.name}: of nothing: {one}" for one in found if not any(_is(wrong, one) for wrong in wrongs)]
    return missing + false


def _is(wrong: Expected, found: Found) -> bool:
    """Tell whether a finding is of this wrong, and says no more than is known."""
    is_there = (wrong.topic, wrong.partition) == (found.topic, found.partition) and wrong.broker in found.brokers
    is_its_record = found.offset in wrong.offsets and (found.key is None or found.key in wrong.keys)
    is_named = found.anomaly == wrong.anomaly or wrong.anomaly in found.candidates
    is_alike = wrong.effect is None or found.effect == wrong.effect or not found.is_sure
    return is_there and is_its_record and is_named and is_alike
