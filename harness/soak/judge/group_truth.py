"""The third judge of a round: which brokers have wrong offsets of groups, by the history of clients.

Verified: of each group and partition that clients committed offsets for, every replica of ``__consumer_offsets`` and
the coordinator of now have an offset that may be the last one, and none pending once its transaction has ended. An
offset of an aborted transaction never counts, and a deleted group has no offset.

Not verified: members of groups, and offsets whose order no client knows; of those, each may be the last one.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from harness.broker_files.internal_topics.decode import CONSUMER_OFFSETS
from harness.schedules.catalog import Anomaly
from harness.soak.causes.cause import GROUPS, Symptom
from harness.soak.evidence.client_log import ABORTED, UNKNOWN

if TYPE_CHECKING:
    from harness.soak.evidence.group_offsets import GroupKey, GroupLog, GroupView, OffsetChange

NAMELESS: Final = ""
KNOWN_REFUSAL: Final = re.compile(r"IllegalStateException: Group \S+ is not a \w+ group")
"""Records of a group of another protocol, whose tombstones this broker has missed (``GroupMetadataManager.replay``; see
docs/explanation/group-coordinators.md)."""


@dataclass(frozen=True)
class GroupTruth:
    """Wrong offsets of groups. ``keys``: groups' partitions that were judged; ``unknown``: with more than one truth.

    ``wrongs``: the view, the name of the anomaly, `NAMELESS` where none explains it, and the error in a sentence.
    """

    wrongs: Sequence[tuple[GroupView, str, str]] = ()
    views: int = 0
    keys: int = 0
    unknown: int = 0

    @property
    def counts(self) -> dict[str, int]:
        """The numbers of offsets in ``verdict.json``."""
        return {"keys": self.keys, "views": self.views, "unknown": self.unknown, "wrong": len(self.wrongs)}

    def symptoms(self) -> Iterator[Symptom]:
        """Yield the errors of each broker by name, as of any other partition."""
        sentences: dict[tuple[int, int, str], list[str]] = defaultdict(list)
        for view, name, sentence in self.wrongs:
            sentences[view.broker, view.partition, name].append(sentence)
        for (broker, partition, name), errors in sorted(sentences.items()):
            yield Symptom(
                GROUPS,
                broker,
                (CONSUMER_OFFSETS, partition),
                anomaly=name,
                count=len(errors),
                explanation=errors[0],
                witness=errors,
            )


def compare_groups(log: GroupLog, views: Sequence[GroupView]) -> GroupTruth:
    """Compare every view with the history of clients."""
    possible = {key: log.possible(key) for key in log.changes}
    wrongs = [(view, *wrong) for view in views for wrong in _wrong(log, possible, view)]
    return GroupTruth(wrongs, len(views), len(possible), sum(len(offsets) > 1 for offsets in possible.values()))


def _wrong(
    log: GroupLog, possible: Mapping[GroupKey, Mapping[int | None, OffsetChange | None]], view: GroupView
) -> Iterator[tuple[str, str]]:
    """Yield the name and the sentence of each error of a view."""
    if view.refusal:
        name = str(Anomaly.TOMBSTONE_DIVERGENCE) if KNOWN_REFUSAL.search(view.refusal) else NAMELESS
        yield name, f"no group has a coordinator: broker {view.broker} cannot load the partition: {view.refusal}"
        return
    for key, allowed in possible.items():
        group, (topic, partition) = key
        words = f"group {group}, {topic}-{partition}: by {view.source}, broker {view.broker} has"
        here, truth = view.committed.get(key), " or ".join(sorted(map(_text, allowed)))
        if key in view.pending:
            sent = [log.change(key, offset) for offset in view.pending[key]]
            # Once every transaction that has sent an offset has ended, as clients know, none is pending.
            transactional = [change for change in log.changes[key] if change.in_transaction]
            if all(change is not None and change.outcome != UNKNOWN for change in (*sent, *transactional)):
                yield str(Anomaly.STUCK_LSO), f"{words} a pending offset, by clients {truth}"
        elif here not in allowed:
            yield _name(log, key, here, allowed), f"{words} {_text(here)}, by clients {truth}"


def _name(log: GroupLog, key: GroupKey, here: int | None, allowed: Mapping[int | None, OffsetChange | None]) -> str:
    change = log.change(key, here)
    if change is not None and change.outcome == ABORTED and change.in_transaction:
        return str(Anomaly.ABORTED_TO_COMMITTED)
    if allowed.keys() == {None} and change is not None:
        return str(Anomaly.TOMBSTONE_DIVERGENCE)
    due = list(allowed.values())
    if len(due) == 1 and due[0] is not None and due[0].in_transaction and (here is None or change is not None):
        return str(Anomaly.COMMITTED_TO_ABORTED)
    return NAMELESS


def _text(offset: int | None) -> str:
    return "no offset" if offset is None else f"offset {offset}"
