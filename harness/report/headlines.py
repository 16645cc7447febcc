"""The headline of a finding: which broker, which partition, and the consequence, in one sentence."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from harness.escape import escape, shortened
from harness.judge.finding import Finding

VISIBLE: Final = "visible"


def headline(finding: Finding) -> str:
    """Return the sentence of a finding of ``verdict.json``; it names a broker only where the finding is decided."""
    if not finding.decided:
        return (
            f"replicas of {_partition(finding)} disagree about {_key(finding)} at offset {finding.offset}, and the "
            "evidence does not show which replica is wrong"
        )
    if sentence := _SENTENCES.get(finding.anomaly):
        return sentence(finding)
    return f"broker {finding.broker} has {escape(finding.anomaly)} in {_partition(finding)}, at offset {finding.offset}"


def worst_number(findings: Sequence[Finding]) -> int | None:
    """Return the number, from 1, of the worst finding: visible before latent, then as in `_SENTENCES`; None without."""
    order = [*_SENTENCES, *(finding.anomaly for finding in findings)]
    ranks = [(finding.effect != VISIBLE, order.index(finding.anomaly)) for finding in findings]
    return ranks.index(min(ranks)) + 1 if ranks else None


def _stuck_lso(finding: Finding) -> str:
    high_watermark = finding.witness.get("high_watermark_here")
    # Compaction leaves gaps, and markers have offsets, too: offsets are at least as many as records.
    hidden = None if high_watermark is None else high_watermark - finding.offset
    verb = "is" if hidden == 1 else "are"
    consequence = "" if hidden is None else f"; up to {_count(hidden, 'record')} {verb} invisible"
    return f"broker {finding.broker} will never deliver {_past(finding)}{consequence}"


def _hanging_transaction(finding: Finding) -> str:
    return f"no broker will ever deliver {_past(finding)}: a transaction is open on every replica"


def _aborted_to_committed(finding: Finding) -> str:
    verb, rest = ("delivers", "") if finding.effect == VISIBLE else ("holds", ", behind its last stable offset")
    records = f"{_records(finding, 'aborted')} as committed, from offset {finding.offset} ({_key(finding)})"
    return f"broker {finding.broker} {verb} {records}{rest}"


def _tombstone_divergence(finding: Finding) -> str:
    deleted_at = finding.witness.get("deleted_at")
    gone = "which other replicas have removed" if deleted_at is None else f"deleted at offset {deleted_at}"
    return (
        f"broker {finding.broker} still serves deleted {_key(finding)} of {_partition(finding)}: the value at "
        f"offset {finding.offset}, {gone}"
    )


def _committed_to_aborted(finding: Finding) -> str:
    broker, witness = f"broker {finding.broker}", finding.witness
    if "records" not in witness:
        return (
            f"{broker} counts a committed transaction of {_partition(finding)} as aborted, from offset "
            f"{finding.offset}; none of its records is left"
        )
    hides = f"{broker} hides {_records(finding, 'committed')}, from offset {finding.offset}"
    if finding.effect != VISIBLE:
        return f"{hides}; later records supersede {'it' if witness['records'] == 1 else 'them'}"
    alive_at = witness.get("alive_here_at")
    served = "do not get its last value" if alive_at is None else f"get the older value at offset {alive_at}"
    return f"{hides}: consumers of {_key(finding)} {served}"


def _unexplained_divergence(finding: Finding) -> str:
    broker, partition, last = f"broker {finding.broker}", _partition(finding), finding.witness.get("last_committed_at")
    if last is None:
        return f"{broker} applies a later marker to a transaction in {partition}, from offset {finding.offset}"
    return f"{broker} does not have the last committed record of {_key(finding)} in {partition}, at offset {last}"


_SENTENCES: Final[Mapping[str, Callable[[Finding], str]]] = {
    "stuck-lso": _stuck_lso,
    "hanging-transaction": _hanging_transaction,
    "aborted-to-committed": _aborted_to_committed,
    "tombstone-divergence": _tombstone_divergence,
    "committed-to-aborted": _committed_to_aborted,
    "unexplained-divergence": _unexplained_divergence,
}
"""By anomaly, the worst first: a partition that nobody can read to its end, then wrong data, then missing data."""


def _partition(finding: Finding) -> str:
    return f"{escape(finding.topic)}-{finding.partition}"


def _past(finding: Finding) -> str:
    return f"{_partition(finding)} past offset {finding.offset} to read_committed consumers"


def _records(finding: Finding, outcome: str) -> str:
    return f"{_count(finding.witness.get('records', 1), f'{outcome} record')} of {_partition(finding)}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _key(finding: Finding) -> str:
    if finding.record is not None and finding.record.key is not None:
        return finding.record.text
    return "a record without a key" if finding.key is None else f"key {shortened(finding.key)}"
