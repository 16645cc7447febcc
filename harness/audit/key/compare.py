"""Compares what replicas serve for one key, by the rules of the checkers.

Sources: `checkers.anomalies` (two replicas give a transaction different outcomes, or one replica still has open what
another has ended), `checkers.replay.truth` (up to the bound, the newest committed record of a key is missing on a
replica, or a replica serves a value that another replica has deleted). Legal are a tombstone or a superseded value that
another replica has removed, and offsets before a log start offset.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from checkers.replay.batch_outcomes import ABORTED
from harness.audit.key.log import KeyRecord, KeyReplica
from harness.judge.finding import brokers_text


@dataclass
class Comparison:
    """``differences``: those that no cleaner may cause. ``doubts``: why more may differ. Each is a sentence."""

    differences: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)


def compare(replicas: Sequence[KeyReplica]) -> Comparison:
    """Compare replicas up to the bound: the smaller of the highest high watermark and the shortest log's end.

    A replica that has a leader epoch beyond the first offset of a later one ends there: that tail was never replicated
    (`batch_outcomes.unreplicated_tails`). Offsets before the highest log start offset do not count.
    """
    if not replicas:
        return Comparison(doubts=["no replica was read"])
    spans = [(epoch, *span) for replica in replicas for epoch, span in replica.log.epochs.items()]
    tails = [first for newer, first, _ in spans for epoch, _, last in spans if epoch < newer and first <= last]
    bound = min([max(r.high_watermark for r in replicas), *(r.log.end for r in replicas), *tails])
    start = max(replica.log.log_start for replica in replicas)
    result = Comparison()
    if len(replicas) == 1:
        result.doubts.append(f"only the replica of broker {replicas[0].broker} was read")
    _compare_outcomes(replicas, bound, result)
    for replica in replicas:
        if replica.log.has_old_format:
            result.doubts.append(f"records of broker {replica.broker} from before Kafka 0.11 were not read")
        if replica.is_complete is False:
            result.doubts.append(f"broker {replica.broker} was not read to its end: its high watermark stayed behind")
        _compare_open(replica, replicas, bound, result)
    newest = {replica.broker: replica.newest(bound) for replica in replicas}
    last = max((record for record in newest.values() if record is not None), key=lambda r: r.offset, default=None)
    if last is not None and last.offset >= start:
        _compare_newest(replicas, newest, last, bound, result)
    return result


def _compare_outcomes(replicas: Sequence[KeyReplica], bound: int, result: Comparison) -> None:
    held: dict[int, list[tuple[KeyReplica, KeyRecord]]] = defaultdict(list)
    for replica in replicas:
        for record in replica.log.records:
            if record.offset < bound:
                held[record.offset].append((replica, record))
    for offset, copies in sorted(held.items()):
        brokers = {
            outcome: [replica.broker for replica, record in copies if record.outcome == outcome]
            for outcome in {record.outcome for _, record in copies}
        }
        if len({record.leader_epoch for _, record in copies}) > 1:
            result.doubts.append(f"offset {offset}: replicas have records of different leader epochs")
        elif len(brokers) > 1:
            last = max(record.ended_at for _, record in copies if record.ended_at is not None)
            text = " and ".join(f"{outcome} on {brokers_text(brokers[outcome])}" for outcome in sorted(brokers))
            if last < bound:
                result.differences.append(f"offset {offset}: {text}")
            else:
                result.doubts.append(f"offset {offset}: {text}, and the marker at {last} is beyond offset {bound}")


def _compare_open(replica: KeyReplica, replicas: Sequence[KeyReplica], bound: int, result: Comparison) -> None:
    """Compare the first open transaction, if it hides records of the key, with replicas that are past it."""
    log = replica.log
    producer, first = min(log.opened.items(), key=lambda item: item[1], default=(None, bound))
    past = [other for other in replicas if first < other.last_stable]
    if first >= bound or not past or not log.records or log.records[-1].offset < first:
        return
    text = (
        f"broker {replica.broker} still has the transaction of producer {producer} open from offset {first} on, and"
        f" shows read_committed consumers nothing from there on; it ended on {brokers_text(b.broker for b in past)}"
    )
    # Else the marker may be beyond the end of this log.
    ends = [(other.log.end if other.is_complete is None else other.high_watermark, other) for other in past]
    if any(end <= bound and other.log.log_start <= first for end, other in ends):
        result.differences.append(text)
    else:
        result.doubts.append(f"{text}, maybe beyond offset {bound}, or they begin after it")


def _compare_newest(
    replicas: Sequence[KeyReplica],
    newest: Mapping[int, KeyRecord | None],
    last: KeyRecord,
    bound: int,
    result: Comparison,
) -> None:
    """Compare the newest committed record before the bound, ``last``, with replicas that do not have it."""
    having = [broker for broker, record in newest.items() if record is not None and record.offset == last.offset]
    others: dict[tuple[str, str], list[int]] = defaultdict(list)
    for replica in replicas:
        log, mine = replica.log, newest[replica.broker]
        is_here = any(record.offset == last.offset for record in log.records)
        if is_here or (mine is None and last.value is None):
            continue
        is_whole = log.whole_from <= bound if replica.is_complete is None else replica.is_complete
        doubt = ""
        if any(record.offset >= bound and record.outcome != ABORTED for record in log.records):
            doubt = f"newer records of the key are beyond offset {bound}, to which all replicas were read"
        elif mine is None and not is_whole:
            doubt = f"that log was cleaned beyond offset {bound}, to which all replicas were read"
        others[state_text(mine), doubt].append(replica.broker)
    for (state, doubt), brokers in others.items():
        text = (
            f"{brokers_text(brokers)}: {state}, and nothing at offset {last.offset}; {brokers_text(having)}:"
            f" {state_text(last)}"
        )
        (result.doubts if doubt else result.differences).append(f"{text}; {doubt}" if doubt else text)


def state_text(record: KeyRecord | None) -> str:
    """Return a phrase for what a replica serves."""
    if record is None:
        return "no record"
    return f"{'a delete' if record.value is None else 'the value'} of offset {record.offset}"
