"""The commit tier's rule: which tests run, by what they cost, what they exercise and what changed.

In this order, and each test for the first reason that holds:

* new: a test without a recorded duration always runs;
* quick: a test whose seconds and share of its shared fixtures are at most `QUICK_S`, as long as the budget lasts;
* sample: the cheapest tests by which, with those above, each required feature is exercised at least once; always;
* wanted: the cheapest tests by which each wanted feature is, as long as the budget lasts;
* changed: a test that depends on a changed module, the nearest to the change first, then the cheapest, as long as
  the budget lasts. A test that exceeds what is left is passed over for cheaper ones;
* more: the cheapest of the other tests, as long as the budget lasts: the most tests for the seconds that are left.

A shared fixture costs its seconds once, with the first selected test that needs it; for the order of tests, each of
its users has an equal share.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

NEW, QUICK, SAMPLE, WANTED, CHANGED, MORE = "new", "quick", "sample", "wanted", "changed", "more"
QUICK_S: Final = 0.5


@dataclass(frozen=True)
class Candidate:
    """A test that may be selected.

    ``seconds``: without shared fixtures; None if it was never measured. ``shared``: keys of its shared fixtures.
    ``distance``: how many imports lie between the test and the nearest changed module; None if there is none.
    """

    name: str
    seconds: float | None
    shared: frozenset[str] = frozenset()
    features: frozenset[str] = frozenset()
    distance: int | None = None


@dataclass(frozen=True)
class Selection:
    """Selected tests with the reason of each, the others, and what both cost by the record.

    ``left_out_s`` counts a shared fixture only if no selected test sets it up anyway. ``missing``: the wanted features
    that no selected test exercises.
    """

    reasons: dict[str, str]
    left_out: tuple[str, ...]
    selected_s: float
    left_out_s: dict[str, float]
    missing: frozenset[str] = frozenset()


@dataclass
class _Account:
    """What is selected so far."""

    shared_s: Mapping[str, float]
    budget_s: float
    reasons: dict[str, str] = field(default_factory=dict)
    paid: set[str] = field(default_factory=set)
    features: set[str] = field(default_factory=set)
    spent_s: float = 0

    def price_s(self, test: Candidate) -> float:
        """Return what it costs to select this test, too."""
        return (test.seconds or 0) + sum(self.shared_s.get(key, 0) for key in test.shared - self.paid)

    def affords(self, test: Candidate) -> bool:
        return self.spent_s + self.price_s(test) <= self.budget_s

    def others(self, tests: Iterable[Candidate]) -> list[Candidate]:
        return [test for test in tests if test.name not in self.reasons]

    def select(self, tests: Iterable[Candidate], reason: str, *, always: bool = False) -> None:
        """Select those tests, in their order, that the budget affords, or all of them."""
        for test in tests:
            if always or self.affords(test):
                self.spent_s += self.price_s(test)
                self.paid |= test.shared
                self.features |= test.features
                self.reasons[test.name] = reason


def select(
    tests: Sequence[Candidate],
    shared_s: Mapping[str, float],
    required: frozenset[str],
    budget_s: float,
    *,
    wanted: frozenset[str] = frozenset(),
) -> Selection:
    """Select tests for a commit.

    ``required``: the features of which each has to be exercised by a test, whatever the budget; ``wanted``: within it.
    """
    account = _Account(shared_s, budget_s)
    users = Counter(key for test in tests for key in test.shared)

    def share_s(test: Candidate) -> float:
        return (test.seconds or 0) + sum(shared_s.get(key, 0) / users[key] for key in test.shared)

    def distance(test: Candidate) -> float:
        return inf if test.distance is None else test.distance

    def nearest_first(chosen: Iterable[Candidate]) -> list[Candidate]:
        return sorted(chosen, key=lambda test: (distance(test), share_s(test), test.name))

    account.select([test for test in tests if test.seconds is None], NEW, always=True)
    account.select(nearest_first(test for test in account.others(tests) if share_s(test) <= QUICK_S), QUICK)
    account.select(_sample(tests, account, required), SAMPLE, always=True)
    account.select(_sample(tests, account, wanted), WANTED)
    account.select(nearest_first(test for test in account.others(tests) if test.distance is not None), CHANGED)
    account.select(nearest_first(account.others(tests)), MORE)
    costs_s = {}
    for test in account.others(tests):
        costs_s[test.name] = account.price_s(test)
        account.paid |= test.shared
    return Selection(account.reasons, tuple(costs_s), account.spent_s, costs_s, wanted - account.features)


def _sample(tests: Sequence[Candidate], account: _Account, wished: frozenset[str]) -> Iterator[Candidate]:
    """Yield tests that exercise the wished features, greedily: always the fewest seconds for each feature added.

    A test that the account does not take exercises nothing; the next ones are chosen without it.
    """
    passed_over = set[str]()
    while useful := [
        test
        for test in account.others(tests)
        if test.name not in passed_over and test.features & wished - account.features
    ]:
        best = min(
            useful,
            key=lambda test: (account.price_s(test) / len(test.features & wished - account.features), test.name),
        )
        passed_over.add(best.name)
        yield best
