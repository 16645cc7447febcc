"""Replicas that left the ISR during a run although no fault had taken their broker down, by the metadata log.

A busy host fences brokers that nobody stopped. Then no replica may have every record, and findings stay undecided.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeAlias

from harness.broker_files.internal_topics.decode import CLUSTER_METADATA
from harness.broker_files.metadata_log.history import ClusterMetadata, absences
from harness.broker_files.metadata_log.join import read_metadata_logs
from harness.broker_files.segments.records import MAX_INT64
from harness.cluster.cluster import Cluster
from harness.errors import HarnessError
from harness.schedules.operations import NEMESIS

LEAVE, COME_BACK = "leave", "come back"
Outages: TypeAlias = "Mapping[int | None, Sequence[tuple[int, int]]]"
"""Begin and end of each outage in ms since the epoch, by broker; None: of any broker."""
TOLERANCE_MS: Final = 1000
"""The largest difference between the clocks of a broker's host and of this host."""


def unplanned_departures(cluster: Cluster, events: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a sentence for each broker that left an ISR outside its outage, by the history. Raises `HarnessError`."""
    broker = cluster.staying[0]
    with TemporaryDirectory(prefix="metadata-") as folder:
        cluster.runtime.copy_partition(broker, CLUSTER_METADATA, 0, Path(folder) / CLUSTER_METADATA)
        joined = read_metadata_logs({broker: Path(folder) / CLUSTER_METADATA}, {topic for topic, _ in cluster.replicas})
    if joined.metadata is None:
        raise HarnessError("; ".join(joined.notes))
    return departures_in(joined.metadata, cluster.brokers, outages_of(events))


def departures_in(metadata: ClusterMetadata, brokers: Collection[int], outages: Outages) -> list[str]:
    """Return the sentences by a metadata log."""
    sentences = []
    for broker in brokers:
        planned = [*outages.get(broker, ()), *outages.get(None, ())]
        left = [
            (absence.since_ms, place, absence)
            for place, history in metadata.histories.items()
            for absence in absences([state for state in history.states if broker in state.replicas], broker)
            if absence.since_ms is not None
            and not any(s - TOLERANCE_MS <= absence.since_ms <= e + TOLERANCE_MS for s, e in planned)
        ]
        if left:
            first = min(left, key=itemgetter(0))[2]
            places = len({place for _, place, _ in left})
            sentences.append(
                f"broker {broker} left the ISR of {places} partition{'s' if places > 1 else ''} although no fault had "
                f"taken it down ({first}): findings may stay undecided, and a result may be unexpected"
            )
    return sentences


def outages_of(events: Iterable[Mapping[str, Any]]) -> Outages:
    """Return when the nemesis had each broker down; None: any, as a script may restart others as well."""
    outages: dict[int | None, list[tuple[int, int]]] = defaultdict(list)
    begun_ms: dict[int | None, int] = {}
    for event in events:
        if event["process"] != NEMESIS or event["f"] not in {LEAVE, COME_BACK}:
            continue
        if event["type"] == "invoke":
            begun_ms = dict.fromkeys(event["brokers"], event["time_ms"]) | begun_ms | {None: event["time_ms"]}
        else:
            for broker in [None] if event["f"] == LEAVE else [None, *event["brokers"]]:
                outages[broker].append((begun_ms.pop(broker), event["time_ms"]))
    for broker, start_ms in begun_ms.items():
        outages[broker].append((start_ms, MAX_INT64))
    return outages
