"""Which topics a command is about, by what the user names; the same for copies of disks and for a running cluster.

As a shell's ``*`` leaves out files that begin with a dot, a pattern leaves out topics that begin with ``__`` unless it
begins so itself. Where nothing is named, it is every compacted topic, internal ones included. The notes say which
topics that gives: nothing is left out silently.
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
    """Whether a name or a pattern (``*``, ``?``, ``[...]``) is about a topic."""
    return any(
        fnmatchcase(topic, pattern) and (pattern.startswith(_INTERNAL) or not topic.startswith(_INTERNAL))
        for pattern in patterns
    )


def is_compacted(topic: str, policy: str | None) -> bool:
    """Whether a topic is compacted by its cleanup policy; where that is unknown, by what brokers create."""
    if policy is None:
        return topic in COMPACTED_BY_DEFAULT
    return _COMPACT in (one.strip() for one in policy.split(","))


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
    """Return a note on the topics that are audited where none were named. ``others``: how many are not compacted."""
    names = sorted(topics)
    rest = f"; {others} more topic{'s are' if others > 1 else ' is'} not compacted" if others else ""
    return f"every compacted topic is audited, by {source}: {', '.join(names)}{rest}"
