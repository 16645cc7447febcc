"""Findings about Kafka itself: errors on every replica, which no comparison of replicas shows.

``violated-<guarantee>``: every replica of a partition violates the same documented guarantee (`checkers.guarantees`) at
the same offset, or a violation does not depend on a replica. For example, no replica serves a record any more that is
its key's last committed record. Partitions with another finding are left out, as an anomaly breaks guarantees too.

``stopped-cleaner`` and ``retained-tombstone`` or ``retained-marker``: every replica that stayed still has a record that
had to be removed, although the run waited for `LONGEST_PASS_S` longer than its settings allow: `LIMITS` are
``max.compaction.lag.ms``, after which the log has to be cleaned (KIP-354,
`LogCleanerManager.grabFilthiestCompactedLog`), ``delete.retention.ms`` (KIP-534), and ``producer.id.expiration.ms``,
until which a producer's last batch is kept (`Cleaner.cleanInto`). The cleaners have stopped if none has passed the
record. This is judged only with the first setting, and not for replicas that are kept from cleaning alone: with a gate,
a guard or coordinated compaction.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from harness.judge.finding import CheckerRow, Finding, Place, brokers_text, by_place
from harness.judge.guarantees import GuaranteeResult

LONGEST_PASS_S: Final = 10.0
LIMITS: Final = ("max.compaction.lag.ms", "delete.retention.ms", "producer.id.expiration.ms")
STOPPED_CLEANER: Final = "stopped-cleaner"
VIOLATED: Final = "violated-"
_DEFAULTS_MS: Final = {"delete.retention.ms": 86_400_000, "producer.id.expiration.ms": 86_400_000}
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


def unremoved(manifest: Mapping[str, Any], exposure: Sequence[CheckerRow], absent: Sequence[int]) -> Iterator[Finding]:
    """Yield a finding for each record that had to be removed and no replica removed; ``exposure``: checker's rows."""
    settings = {**_DEFAULTS_MS, **manifest.get("broker_settings", {}), **manifest.get("topic_settings", {})}
    waited_s, limits_ms = manifest["timings_s"].get("clean", 0), {n: int(settings[n]) for n in LIMITS if n in settings}
    if len(limits_ms) < len(LIMITS) or waited_s < sum(limits_ms.values()) / 1000 + LONGEST_PASS_S:
        return
    stayed = [row for row in exposure if row["broker"] not in absent]
    for place, rows in by_place(stayed).items():
        for kind in sorted({row["kind"] for row in rows}):
            of_kind = [row for row in rows if row["kind"] == kind]
            passed = {row["cleaned_past"] for row in of_kind}
            if all(row["held_critical"] and row["held_after"] for row in of_kind) and len(passed) == 1:
                brokers, offset = [row["broker"] for row in of_kind], of_kind[0]["critical_offset"]
                is_passed, replicas = passed.pop(), brokers_text(brokers)
                yield _finding(
                    f"retained-{kind}" if is_passed else STOPPED_CLEANER,
                    place,
                    brokers,
                    offset,
                    "latent",
                    f"the cleaners of {replicas} passed offset {offset} and did not remove the {kind}"
                    if is_passed
                    else f"the cleaners of {replicas} did not clean offset {offset}",
                    {"waited_s": waited_s, **limits_ms},
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
