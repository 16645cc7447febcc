"""The logs of all brokers side by side: a row an offset, a column a broker, with each broker's transaction outcomes."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from harness.broker_files.internal_topics.phrases import state, subject
from harness.broker_files.segments import batches
from harness.broker_files.segments.batches import Batch, CorruptLogError, Record
from harness.escape import shortened
from harness.judge.finding import Finding, Place, PlaceOf
from harness.report.pictures.story import Story
from harness.run_folder.history import HEADER_TXN, read_lines
from harness.run_folder.store import AFTER_REJOIN, RunFolder

BACKGROUND: Final = b"filler."
"""Prefix of keys and transactional ids of the background traffic."""
VALUE, TOMBSTONE, EMPTIED = "value", "tombstone", "emptied batch"


@dataclass(frozen=True)
class LogCell:
    """One broker's content at an offset. ``kind``: value, tombstone, emptied batch, or the marker's type.

    ``transaction``: by the record's header. ``outcome`` and ``decided_by``: this broker's outcome of its transaction,
    and the marker that decides it; None outside transactions.
    """

    kind: str
    key: str | None = None
    value: str | None = None
    producer_id: int | None = None
    transaction: str | None = None
    outcome: str | None = None
    decided_by: int | None = None


@dataclass(frozen=True)
class LogRow:
    """One offset. ``cells`` and ``missing`` are by broker: the content, or why there is none.

    ``findings``: their numbers by broker. ``differs``: the brokers with content at the offset interpret
    it differently, or a finding is about it.
    """

    offset: int
    cells: Mapping[int, LogCell]
    missing: Mapping[int, str]
    findings: Mapping[int, Sequence[int]]
    differs: bool
    background: bool


@dataclass(frozen=True)
class SideBySide:
    """One partition on all of its brokers. ``problem``: why a log cannot be shown to its end, "" where it can."""

    topic: str
    partition: int
    brokers: tuple[int, ...]
    rows: tuple[LogRow, ...]
    problem: str = ""

    place = PlaceOf()


def side_by_side(
    folder: RunFolder, manifest: Mapping[str, Any], findings: Sequence[Finding], story: Story
) -> list[SideBySide]:
    """Return every partition after the rejoin; records that no broker has, and findings about them, have rows, too."""
    rows_of_outcomes = read_lines(folder.outcomes_path) if folder.outcomes_path.is_file() else []
    outcomes = {
        (row["broker"], (row["topic"], row["partition"]), row["base_offset"]): (row["outcome"], row["decided_by"])
        for row in rows_of_outcomes
    }
    numbers: dict[Place, dict[int, dict[int, list[int]]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for number, finding in enumerate(findings, 1):
        numbers[finding.place][finding.offset][finding.broker].append(number)

    def partition_of(place: Place, brokers: Sequence[int]) -> SideBySide:
        cells_by_broker: dict[int, dict[int, LogCell]] = {broker: {} for broker in brokers}
        entries, removed, numbers_here = story.entries.get(place, {}), story.removals(place), numbers.get(place, {})
        background = {offset: False for offset, entry in entries.items() if not entry.background}
        background |= dict.fromkeys(numbers_here, False)
        problems = []
        for broker, cells in cells_by_broker.items():
            try:
                for at, cell, is_background in _cells(folder, broker, place, outcomes):
                    cells[at] = cell
                    background.setdefault(at, is_background or (at in entries and entries[at].background))
            except (CorruptLogError, OSError) as error:
                problems.append(f"broker {broker}: {error}")
        rows = []
        for offset, is_background in sorted(background.items()):
            cells = {broker: cells[offset] for broker, cells in cells_by_broker.items() if offset in cells}
            findings_here = numbers_here.get(offset, {})
            differs = len({(cell.outcome, cell.kind) for cell in cells.values()}) > 1 or bool(findings_here)
            missing = {b: removed.get((b, offset), "never seen here") for b in brokers if b not in cells}
            rows.append(LogRow(offset, cells, missing, findings_here, differs, is_background and not differs))
        return SideBySide(*place, tuple(brokers), tuple(rows), "; ".join(problems))

    return [
        partition_of((scenario["topic"], int(partition)), sorted(brokers))
        for scenario in manifest["scenarios"]
        for partition, brokers in scenario["replicas"].items()
    ]


def _cells(
    folder: RunFolder, broker: int, place: Place, outcomes: Mapping[tuple[int, Place, int], tuple[str, int | None]]
) -> Iterator[tuple[int, LogCell, bool]]:
    """Yield offset, cell, and whether it is background traffic."""
    background: set[int] = set()
    for batch, source in _batches(folder, broker, f"{place[0]}-{place[1]}"):
        outcome, decided_by = outcomes.get((broker, place, batch.base_offset), (None, None))
        producer_id = batch.producer_id if batch.producer_id >= 0 else None
        fields: dict[str, Any] = {"producer_id": producer_id, "outcome": outcome, "decided_by": decided_by}
        if batch.is_control:
            control = batches.marker(batch, source=source)
            kind = control.type if control else EMPTIED
            yield batch.last_offset, LogCell(kind, producer_id=producer_id), batch.producer_id in background
        elif batch.is_empty:
            yield batch.last_offset, LogCell(EMPTIED, **fields), batch.producer_id in background
        else:
            for record in batches.iter_records(batch, source=source):
                transaction = next((shortened(value) for name, value in record.headers if name == HEADER_TXN), None)
                kind = TOMBSTONE if record.value is None else VALUE
                cell = LogCell(kind, *_texts(place[0], record), transaction=transaction, **fields)
                is_background = (record.key or b"").startswith(BACKGROUND)
                if is_background and producer_id is not None:
                    background.add(producer_id)
                yield record.offset, cell, is_background


def _texts(topic: str, record: Record) -> tuple[str | None, str | None]:
    """Return key and value; of a topic that brokers or their tools keep, decoded where that is possible."""
    about = subject(topic, record.key)
    if about is None or about.key is None:
        return shortened(record.key), shortened(record.value)
    return about.text, None if record.value is None else state(topic, about, record.value)


def _batches(folder: RunFolder, broker: int, name: str) -> Iterator[tuple[Batch, str]]:
    """Yield the batches of the broker's files, or the served batches where the files are not Kafka's."""
    place = folder.broker_snapshot(broker, AFTER_REJOIN) / name
    files = sorted(place.glob("*.log")) or [folder.fetched_snapshot(broker, AFTER_REJOIN) / name / "batches.bin"]
    for path in files:
        source = str(path.relative_to(folder.path))
        for batch in batches.until_cut(batches.iter_batches(path.read_bytes(), source=source)):
            yield batch, source
