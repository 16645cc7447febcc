"""Brokers' log lines about compaction that waits for replicas, for ``gate.jsonl`` of a run folder.

Schema of ``gate.jsonl``, one event a line, in the order of each broker's log:

    broker     int
    time_ms    int   the time of the gate's decision, milliseconds since the epoch; missing for a build and installed
    event      str   held | released | gave-up | began-anew; without topic and partition: held-all | released-all |
                     installed, by a broker that starts
    topic, partition
    held, gave-up     reason    not-in-sync | unassigned: why its compaction waits
    held-all          reason    no-image | old-image | fenced: why compaction of every partition of the broker waits
    released, gave-up held_ms, grown_bytes   for how long it waited, and by how much its log grew
    began-anew        leader    the leader from which this broker copies the replica, from the first record on
                      dropped_up_to   its previous log end offset

``Log.event`` of the agent writes the lines. A build with the gate's rules (``results/upstream/patch``) logs less:
compaction waits or continues (``LogCleanerManager.isWaitingForReplicas`` of the patch), and a copy begins again
(``ReplicaManager.maybeRestartFirstCopy``).
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from harness.kafka_api import TopicPartition

HELD, RELEASED, GAVE_UP, BEGAN_ANEW = "held", "released", "gave-up", "began-anew"
HELD_ALL, RELEASED_ALL, INSTALLED = "held-all", "released-all", "installed"

_PARTITION: Final = rb"(?P<topic>[\w.-]+)-(?P<partition>\d+)"
_LINES: Final = (
    re.compile(
        rb"compaction-gate: (?P<event>held|released|gave-up|began-anew|held-all|released-all|installed)(?![\w-])"
        rb"(?: topic=(?P<topic>[\w.-]+) partition=(?P<partition>\d+))?(?: time_ms=(?P<time_ms>\d+))?(?P<more>[^:]*)"
    ),
    re.compile(
        rb"Compaction of " + _PARTITION + rb" (?P<event>waits until|goes on, as) all of its replicas are in sync"
    ),
    re.compile(
        rb"Copying " + _PARTITION + rb" (?P<event>anew) from leader (?P<leader>\d+), as this replica is being added:"
        rb" dropping its log up to offset (?P<dropped_up_to>\d+)\."
    ),
)
_EVENTS_OF_THE_PATCH: Final = {"waits until": HELD, "goes on, as": RELEASED, "anew": BEGAN_ANEW}
_FIELD: Final = re.compile(r"(reason|held_ms|grown_bytes|leader|dropped_up_to)=(-?\w[\w-]*)")


def parse_line(line: bytes, broker: int) -> dict[str, Any] | None:
    """Return the event of a line of a broker's log; None for any other line."""
    match = next((match for pattern in _LINES if (match := pattern.search(line))), None)
    if match is None:
        return None
    fields = {name: text.decode() for name, text in match.groupdict().items() if text is not None}
    event, more = fields.pop("event"), dict(_FIELD.findall(fields.pop("more", "")))
    values = {n: text if n in {"topic", "reason"} else int(text) for n, text in (fields | more).items()}
    return {"broker": broker, "event": _EVENTS_OF_THE_PATCH.get(event, event), **values}


def is_held(events: Iterable[Mapping[str, Any]], broker: int, partition: TopicPartition) -> bool:
    """Return whether the broker's gate holds the partition, by its last event; a gate that starts holds nothing yet."""
    here = (event for event in events if event["broker"] == broker and event["event"] != BEGAN_ANEW)
    states = [e["event"] for e in here if e["event"] == INSTALLED or (e.get("topic"), e.get("partition")) == partition]
    return states[-1:] == [HELD]
