"""Select the topics of a command, for copies of disks and for a running cluster.

A pattern matches topics that begin with ``__`` only if it begins with ``__``, as a shell's ``*`` treats files that
begin with a dot. By default every compacted topic is selected, including internal ones. Notes name the selected topics
and those that were left out.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from harness.broker_files.copies.notes import listed
from harness.broker_files.internal_topics.decode import COMPACTED_BY_DEFAULT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_INTERNAL: Final = "__"
_COMPACT: Final = "compact"
_SHOWN: Final = 10


def is_named(topic: str, patterns: Iterable[str]) -> bool:
    """Return whether a name or a pattern (``*``, ``?``, ``[...]``) selects a topic."""
    return any(
        fnmatchcase(topic, pattern) and (pattern.startswith(_INTERNAL) or not topic.startswith(_INTERNAL))
        for pattern in patterns
    )


def is_compacted(topic: str, policy: str | None) -> bool:
    """Return whether a topic is compacted by its cleanup policy or, if that is unknown, by brokers' defaults."""
    if policy is None:
        return topic in COMPACTED_BY_DEFAULT
    return _COMPACT in (part.strip() for part in policy.split(","))


def internal_left_out(topics: Iterable[str], patterns: Sequence[str]) -> list[str]:
    """Return a note on the internal topics that a pattern does not match only because they begin with ``__``."""
    left_out = sorted(
        {
            topic
            for topic in topics
            if not is_named(topic, patterns) and any(fnmatchcase(topic, pattern) for pattern in patterns)
        }
    )
    names = listed(left_out, _SHOWN)
    remedy = "name them, or leave out --topic for every compacted topic"
    return [f"internal topics are left out: {names}; {remedy}"] if left_out else []


def audited(topics: Iterable[str], others: int, source: str) -> str:
    """Return a note on the topics that are audited by default. ``others``: the number of topics that are not."""
    names = sorted(topics)
    rest = f"; {others} more topic{'s are' if others > 1 else ' is'} not compacted" if others else ""
    return f"every compacted topic is audited, by {source}: {', '.join(names)}{rest}"
