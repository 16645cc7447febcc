"""Findings about Kafka itself: errors on every replica, which no comparison of replicas shows.

``violated-<guarantee>``: every replica of a partition violates the same documented guarantee (`checkers.guarantees`) at
the same offset, or a violation does not depend on a replica. For example, no replica serves a record any more that is
its key's last committed record. Partitions with another finding are left out, as an anomaly breaks guarantees too.

``stopped-cleaner``: on every replica that stayed, the cleaner has not passed a tombstone or marker although the run
waited for `LONGEST_PASS_S` longer than ``max.compaction.lag.ms``, after which the log has to be cleaned (KIP-354,
`LogCleanerManager.grabFilthiestCompactedLog`). It is judged only with that setting, and not for replicas that are
kept from cleaning alone: with a gate, a guard or coordinated compaction.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from harness.judge.finding import CheckerRow, Finding, Place, brokers_text, by_place
from harness.judge.guarantees import GuaranteeResult

LONGEST_PASS_S: Final = 10.0
STOPPED_CLEANER: Final = "stopped-cleaner"
VIOLATED: Final = "violated-"
_SERVED: Final = {"last-value", "order", "offsets"}
"""Guarantees about records that consumers receive."""


def violated_everywhere(
    results: Sequence[GuaranteeResult], replicas: Mapping[Place, Sequence[int]], findings: Sequence[Finding]
) -> Iterator[Finding]:
    """Yield a finding for each guarantee and partition without ``findings`` of which every replica violates it."""
    named = {finding.place for finding in findings}
    for result in results:
        places = {violation.place for violation in result.violations} & replicas.keys() - named
        for place in sorted(places):
            violations = [violation for violation in result.violations if violation.place == place]
            first = violations[0]
            brokers = {violation.broker for violation in violations if violation.offset == first.offset}
            if first.broker is None or brokers.issuperset(replicas[place]):
                yield _finding(
                    f"{VIOLATED}{result.guarantee}",
                    place,
                    replicas[place],
                    first.offset or 0,
                    "visible" if result.guarantee in _SERVED else "latent",
                    f"every replica violates the guarantee {result.guarantee}: {first.explanation}",
                    first.witness,
                )


def stopped_cleaners(
    manifest: Mapping[str, Any], exposure: Sequence[CheckerRow], absent: Sequence[int]
) -> Iterator[Finding]:
    """Yield a finding for each partition whose cleaners have all stopped; ``exposure`` as the checker returns it."""
    settings, waited_s = manifest.get("topic_settings", {}), manifest["timings_s"].get("clean", 0)
    lag_ms = settings.get("max.compaction.lag.ms")
    if lag_ms is None or waited_s < int(lag_ms) / 1000 + LONGEST_PASS_S:
        return
    stayed = [row for row in exposure if row["broker"] not in absent]
    for place, rows in by_place(stayed).items():
        if all(row["held_critical"] and not row["cleaned_past"] for row in rows):
            offset = min(row["critical_offset"] for row in rows)
            brokers = sorted({row["broker"] for row in rows})
            yield _finding(
                STOPPED_CLEANER,
                place,
                brokers,
                offset,
                "latent",
                f"the cleaners of {brokers_text(brokers)} did not clean offset {offset} within {waited_s:.0f} s, and"
                f" max.compaction.lag.ms is {lag_ms}",
                {"waited_s": waited_s, "max_compaction_lag_ms": int(lag_ms)},
            )


def _finding(  # noqa: PLR0917
    anomaly: str,
    place: Place,
    brokers: Sequence[int],
    offset: int,
    effect: str,
    explanation: str,
    witness: Mapping[str, Any],
) -> Finding:
    return Finding(
        anomaly=anomaly,
        broker=brokers[0],
        topic=place[0],
        partition=place[1],
        offset=offset,
        key=None,
        producer_id=None,
        effect=effect,
        explanation=explanation,
        witness={**witness, "brokers": list(brokers)},
    )
