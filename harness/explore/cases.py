"""What is walked of each simulated target: small clusters that together are walked in a few minutes on two cores.

Each has three brokers, one of which may go away and come back, in any order with everything else (`models.small`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from harness.errors import UsageError
from harness.suggest import nearest
from models.bound import ADD, LEADER, REMOVE, Bound
from models.coordination import RULES

if TYPE_CHECKING:
    from collections.abc import Collection

SIM_KAFKA: Final = "sim-kafka"
COORDINATED: Final = "coordinated"
MESSAGES_MATTER: Final = frozenset({"never-backward", "late-rpc-ignored"})
"""Rules without which a message that is late makes a difference."""


@dataclass(frozen=True)
class Case:
    """One small cluster; ``without``: names of `models.coordination.RULES` that its coordination leaves out."""

    bound: Bound
    coordinated: bool = False
    without: frozenset[str] = frozenset()

    @property
    def delayed(self) -> bool:
        """Whether messages are late, each by itself."""
        return bool(self.without & MESSAGES_MATTER)

    @property
    def title(self) -> str:
        """What may happen, in words."""
        bound = self.bound
        told = [
            f"{len(bound.keys)} key{'s' * (len(bound.keys) > 1)}",
            f"{bound.writes} plain write{'s' * (bound.writes != 1)}",
            f"{bound.transactions} transaction{'s' * (bound.transactions != 1)}{' (v2)' * bound.epoch_bump}",
        ]
        return ", ".join([*told, f"change: {bound.change}"])


_TWO_KEYS: Final = ("K", "L")
_ALONE: Final = (
    Bound(writes=2, transactions=0),
    Bound(writes=1, transactions=2),
    Bound(writes=1, transactions=2, epoch_bump=True),
    Bound(keys=_TWO_KEYS, writes=0, transactions=2),
    Bound(writes=0, transactions=2, change=LEADER),
    Bound(writes=1, transactions=1, change=ADD),
    Bound(writes=1, transactions=1, change=REMOVE),
)
_TOGETHER: Final = (
    Bound(writes=2, transactions=0),
    Bound(writes=2, transactions=0, change=LEADER),
    Bound(writes=2, transactions=0, change=ADD),
    Bound(writes=2, transactions=0, change=REMOVE),
    Bound(writes=0, transactions=1, change=LEADER),
    Bound(writes=0, transactions=1, change=ADD),
    Bound(writes=0, transactions=1, change=REMOVE),
    Bound(writes=1, transactions=1),
)


def cases(target: str, *, with_: str | None, without: tuple[str, ...]) -> list[Case]:
    """Return what is walked of a target, as it is or ``with_`` a proposal, ``without`` some of its rules.

    Raises `UsageError` for a name that is not known, and for rules of a proposal that was not asked for.
    """
    _refuse_unknown("simulated target", target, [SIM_KAFKA])
    if with_ is not None:
        _refuse_unknown("proposal", with_, [COORDINATED])
    for rule in without:
        _refuse_unknown("rule", rule, RULES)
    if without and with_ != COORDINATED:
        raise UsageError(f"{target} has no rule {without[0]}: it is one of --with {COORDINATED}")
    if with_ is None:
        return [Case(bound) for bound in _ALONE]
    return [Case(bound, coordinated=True, without=frozenset(without)) for bound in _TOGETHER]


def _refuse_unknown(kind: str, name: str, known: Collection[str]) -> None:
    if name not in known:
        raise UsageError(nearest(kind, name, list(known)))
