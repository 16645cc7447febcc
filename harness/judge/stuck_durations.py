"""The time for which replicas stayed stuck, by ``aftermath.jsonl`` (`harness.play.aftermath` has the schema)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, kw_only=True)
class StuckReplica:
    """A replica that was stuck when the finding was made, with its status at a later step.

    ``outcome``: the outcome of its transaction for consumers; None while the transaction is open on the replica.
    """

    broker: int
    topic: str
    partition: int
    last_stable_offset: int
    high_watermark: int
    outcome: str | None = None

    def __str__(self) -> str:
        """Return the status in one phrase."""
        where = f"{self.topic}-{self.partition} on broker {self.broker}"
        return f"{where} at {self.last_stable_offset} of {self.high_watermark}"


_STATUS = ("broker", "topic", "partition", "last_stable_offset", "high_watermark")


@dataclass(frozen=True, kw_only=True)
class AftermathStep:
    """A step after the finding: ``after_s`` seconds later, the replicas that are still ``stuck`` and the others."""

    step: str
    summary: str
    after_s: float
    stuck: tuple[StuckReplica, ...]
    ended: tuple[StuckReplica, ...]


def stuck_durations(lines: Sequence[Mapping[str, Any]]) -> tuple[AftermathStep, ...]:
    """Return one entry a step. A replica is stuck as long as a transaction is open that was open at the first step."""
    steps = [list(group) for _, group in groupby(lines, key=lambda line: line["step"])]
    open_at_first = {_replica(line): _open(line) for line in steps[0] if line["open"]} if steps else {}
    entries = []
    for step in steps:
        replicas = []
        for line in step:
            if transactions := open_at_first.get(_replica(line)):
                is_aborted = transactions & {tuple(pair) for pair in line["aborted"]}
                outcome = None if transactions & _open(line) else "aborted" if is_aborted else "committed"
                replicas.append(StuckReplica(**{name: line[name] for name in _STATUS}, outcome=outcome))
        entries.append(
            AftermathStep(
                step=step[0]["step"],
                summary=step[0]["summary"],
                after_s=(step[0]["time_ms"] - lines[0]["time_ms"]) / 1000,
                stuck=tuple(replica for replica in replicas if replica.outcome is None),
                ended=tuple(replica for replica in replicas if replica.outcome is not None),
            )
        )
    return tuple(entries)


def _replica(line: Mapping[str, Any]) -> tuple[int, str, int]:
    return line["broker"], line["topic"], line["partition"]


def _open(line: Mapping[str, Any]) -> set[tuple[int, int]]:
    """Return producer id and first offset of open transactions; the epoch may differ after a restart."""
    return {(producer_id, first_offset) for producer_id, _, first_offset in line["open"]}
