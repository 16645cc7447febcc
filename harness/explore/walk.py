"""Walks cases, a process each, and says what came of them."""

from __future__ import annotations

import gc
import os
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any, NamedTuple

import psutil

from harness.brokers.segments.records import Record
from harness.explore.cases import COORDINATED
from harness.judge.verdict import ANOMALY, CLEAN, UNKNOWN, worst
from models import coordination, redpanda
from models.adoption import CHANGES
from models.kip87 import Difference, differences

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harness.explore.cases import AnyCase
    from models.exhaustive import Explored


@dataclass(frozen=True)
class Walked:
    """A case, what was found in it, and how long that took."""

    case: AnyCase
    found: Explored
    took_s: float

    @property
    def verdict(self) -> str:
        """An anomaly where there is a way to one; clean only where every state was seen."""
        return ANOMALY if self.found.wrong else CLEAN if self.found.is_whole else UNKNOWN


def walk(
    cases: Sequence[AnyCase], *, processes: int, most_states: int, first_only: bool, done: Callable[[Walked], None]
) -> list[Walked]:
    """Walk each case, so many at once; ``done`` is told of each as it ends. Returns them in the order of the cases."""
    walked: dict[AnyCase, Walked] = {}
    asked = partial(_walk, most_states=most_states, first_only=first_only)
    # Workers are made anew: a fork would take along whatever threads the caller has, halfway. Leaving ends them.
    with get_context("forkserver").Pool(processes, _end_with, (os.getpid(),), maxtasksperchild=1) as pool:
        for one in pool.imap_unordered(asked, cases):
            walked[one.case] = one
            done(one)
    return [walked[case] for case in cases]


def _end_with(owner: int) -> None:
    """Have this worker end when its owner does, however that ends."""

    def watch() -> None:
        with suppress(psutil.NoSuchProcess):
            psutil.Process(owner).wait()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _walk(case: AnyCase, *, most_states: int, first_only: bool) -> Walked:
    began_s = time.monotonic()
    # States refer to each other and none of them is let go of: looking for what is no longer used finds nothing.
    gc.disable()
    found = case.walk(most_states=most_states, first_only=first_only)
    return Walked(case, found, time.monotonic() - began_s)


def shortest(walked: Sequence[Walked]) -> dict[str, tuple[AnyCase, tuple[str, ...]]]:
    """Return the shortest way of all cases to each thing that is wrong, with its case."""
    found: dict[str, tuple[AnyCase, tuple[str, ...]]] = {}
    for one in walked:
        for name, steps in one.found.wrong.items():
            if name not in found or len(steps) < len(found[name][1]):
                found[name] = one.case, steps
    return found


def summary(target: str, with_: Sequence[str], walked: Sequence[Walked]) -> dict[str, Any]:
    """Return what is printed as JSON: the verdict over all cases, and each with the shortest way to what is wrong.

    Proposals say what they would change (`told_of`).
    """
    return {
        "schema": 1,
        "verdict": worst([one.verdict for one in walked]),
        "target": {"name": target, "with": list(with_)},
        "cases": [
            {
                "case": one.case.title,
                "without": sorted(one.case.without),
                "verdict": one.verdict,
                "states": one.found.states,
                "transitions": one.found.transitions,
                "depth": one.found.depth,
                "whole": one.found.is_whole,
                "took_s": round(one.took_s, 3),
                "ways": {name: list(steps) for name, steps in sorted(one.found.wrong.items())},
            }
            for one in walked
        ],
        "proposals": {name: [row._asdict() for row in told_of(name)] for name in with_},
    }


def told_of(proposal: str) -> list[Adopted | Difference]:
    """Return what a proposal takes, or changes: rule by rule what a Kafka broker needs, or record by record."""
    if proposal == COORDINATED:
        says = {**coordination.RULES, **redpanda.RULES}
        return [Adopted(rule, says[rule], *change) for rule, change in CHANGES.items()]
    return list(differences(Record(0, 0, b"K", b"v")))


class Adopted(NamedTuple):
    """A rule of coordinated compaction, and what a Kafka broker would need for it."""

    rule: str
    says: str
    message: str
    state: str
    concerns: str
