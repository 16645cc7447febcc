"""The cases to explore of Cloud Topics' compaction: a few writes, two compactors or more, a clock, and a reader.

Brokers have no part in it: there is one copy, and only the committer matters (`models.cloud_topics.world`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from models.cloud_topics import world
from models.exhaustive import explore

if TYPE_CHECKING:
    from models.exhaustive import Explored

_A, _B, _A_GOES = (("A", "1"),), (("B", "1"),), (("A", None),)
_BOTH: Final = (("A", "1"), ("B", "1"))

CLOUD_CASES: Final = {
    "a value, and its delete": world.Case(writes=(_BOTH, _A_GOES)),
    "… and a map of two keys": world.Case(writes=(_BOTH, _A_GOES), entries=2),
    "… each in an object of its own": world.Case(writes=(_A, _B, _A_GOES)),
    "… and another key behind": world.Case(writes=(_A, _A_GOES, _B)),
    "… with three compactors": world.Case(writes=(_A, _A_GOES, _B), compactors=3),
    "… and another key again": world.Case(writes=(_BOTH, _A_GOES, (("B", "2"),))),
    "… all in one object": world.Case(writes=(_BOTH, _A_GOES, (("B", "2"),)), object_records=9),
    "… and the key written anew": world.Case(writes=(_BOTH, _A_GOES, (("B", "2"),), (("A", "3"),))),
}
"""By the writes, in this order; with a map of one key and two compactors unless another number is given."""


@dataclass(frozen=True)
class CloudCase:
    """One of `CLOUD_CASES`; ``without``: names of `models.cloud_topics.rules.RULES` that are left out."""

    title: str
    without: frozenset[str] = frozenset()

    def walk(self, *, most_states: int, first_only: bool) -> Explored:
        """Explore it."""
        start = world.CompactionWorld.of(replace(CLOUD_CASES[self.title], without=self.without))
        return explore(
            start,
            world.CompactionWorld.following,
            world.CompactionWorld.wrong,
            key=world.CompactionWorld.key,
            most_states=most_states,
            first_only=first_only,
        )
