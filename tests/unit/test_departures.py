"""Which brokers left the ISR of a run's partitions, although no fault had taken them down."""

from pathlib import Path

from harness.broker_files.metadata_log.history import ClusterMetadata, PartitionHistory, PartitionState
from harness.broker_files.segments.records import MAX_INT64
from harness.play.departures import Outages, departures_in, outages_of

ALL = (1, 2, 3)
T_MS = 1_795_757_520_000
"""2026-11-27 05:32:00 UTC."""
OUTAGE: Outages = {2: [(T_MS, T_MS + 60_000)]}


def metadata(*isrs: tuple[int, tuple[int, ...]], partitions: int = 1) -> ClusterMetadata:
    """Return a metadata log with these ISRs by time, in seconds after `T_MS`."""
    states = tuple(PartitionState(1, 1, 0, 0, ALL, isr, time_ms=T_MS + at_s * 1000) for at_s, isr in isrs)
    histories = {("t", n): PartitionHistory("id", since_creation=True, states=states) for n in range(partitions)}
    return ClusterMetadata(Path("log"), histories, {}, frozenset({"t"}), 0, 9)


def test_what_a_planned_outage_or_a_script_that_acts_takes_down_is_the_only_thing_not_reported() -> None:
    assert departures_in(metadata((-9, ALL), (3, (1, 3)), (61, ALL)), ALL, OUTAGE) == []
    outages = {None: [(T_MS, T_MS + 5000)], 2: [(T_MS, T_MS + 60_000)]}
    assert departures_in(metadata((-9, ALL), (3, (1, 2)), (6, ALL)), ALL, outages) == []
    assert len(departures_in(metadata((-9, ALL), (3, (1, 3))), ALL, {})) == 1
    assert departures_in(metadata((-9, ALL)), ALL, {}) == []


def test_another_broker_or_another_time_is_reported() -> None:
    log = metadata((-9, ALL), (3, (1, 3)), (4, (1,)), (5, (1, 3)), (61, ALL), (90, (1, 3)), partitions=2)
    times = {2: "05:33:30 UTC on", 3: "05:32:04 UTC until 2026-11-27 05:32:05 UTC"}
    assert departures_in(log, ALL, OUTAGE) == [
        f"broker {broker} left the ISR of 2 partitions although no fault had taken it down (out of the ISR from "
        f"2026-11-27 {time}): findings may stay undecided, and a result may be unexpected"
        for broker, time in times.items()
    ]


def test_outages_are_from_the_faults_begin_to_its_end() -> None:
    def event(f: str, kind: str, time_ms: int, process: str = "nemesis") -> dict[str, object]:
        return {"process": process, "f": f, "type": kind, "time_ms": time_ms, "brokers": [2, 3]}

    events = [
        event("leave", "invoke", 5), event("leave", "ok", 7), event("come back", "invoke", 10),
        event("come back", "ok", 12), event("come back", "ok", 99, process="a client"),
    ]  # fmt: skip
    assert outages_of(events) == {None: [(5, 7), (10, 12)], 2: [(5, 12)], 3: [(5, 12)]}
    # The run ended in the outage.
    assert outages_of(events[:2]) == {None: [(5, 7)], 2: [(5, MAX_INT64)], 3: [(5, MAX_INT64)]}
