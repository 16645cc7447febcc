"""The expected findings of an audit of generated folders, from the truth and from each replica's files.

True is what the model wrote: every accepted record, and how each transaction ended. A replica's beliefs are
replayed from its log: a transactional batch is what the next marker of its producer there says, or open; an
emptied marker closes nothing. The four wrongs, each of one replica R:

* stuck-lso: producer P's batches at the end of R are open, the first of them is of a transaction that truly ended,
  and its marker's offset is below R's log end. One for each producer; the offset is where it is frozen.
* aborted-to-committed: R holds a record of a truly aborted transaction and believes it committed. One for each
  transaction; the offset is the first such record's. Also where R had a key's last value and cleaned it away for an
  aborted delete of which it has nothing left: then the others hold the value, and either may be taken for wrong.
* committed-to-aborted: R believes a truly committed transaction aborted: it holds such a record, or an entry of its
  ``.txnindex`` spans the transaction, or it had a tombstone of it, lost it as aborted, and the older value lives.
* tombstone-divergence: K's last committed record is a tombstone that R never had, and R has an older committed value
  of K as its last. One for each key; the offset is the living value's.

A wrong is **required** (``Expected.required``) where the files show it; the strongest evidence is named:

* ``marker``      another replica has the transaction's own marker, with its type (stuck: or a later one);
* ``tombstone``   another replica has the tombstone, and believes it committed;
* ``index``       a ``.txnindex`` entry of another replica tells of the abort;
* ``remnant``     an emptied marker of P lies behind what is open (stuck only);
* ``epoch``       data of a higher epoch of P lies behind what is open (stuck only);
* ``state``       R has a last value of K at o, and another replica S, which starts at or before o and ends no later
                  than R, has nothing of K at or after o;
* ``gone``        likewise S has no batch where R's open transaction begins (stuck only).

For the last two and for a tombstone, no replica that goes further than R may have been cleaned beyond R's end: R may
have copied a log that was cleaned for the sake of a record that R has not reached, and that nobody has any more.
All of it must lie below the bound: the smaller of the highest high watermark in any checkpoint and the shortest log
end. ``decided`` tells whether the evidence leaves one name: a marker, an index entry, or a tombstone outside of
any transaction; every evidence for stuck does. Else the name must be among the candidates, or be the name itself.

A wrong without such evidence is **tolerated**: it may be reported (by what a ``.txnindex`` spans, by a gap in epochs)
and need not be. So are all but the first of one producer's transactions that R ended with one marker: whoever
reports what R took for one transaction as one has found it. A wrong that no file shows any more is neither.
No other findings may be reported.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace

from expected import (
    ABORTED_TO_COMMITTED,
    COMMITTED_TO_ABORTED,
    LATENT,
    STUCK_LSO,
    TOMBSTONE_DIVERGENCE,
    VISIBLE,
    Expected,
)
from partition import Partition, Txn, Written
from truth import Judged, is_below, judge, spans
from view import Run, View

from harness.broker_files.segments.records import ABORT, COMMIT
from harness.models.log.batch import ModelBatch


def expected(partition: Partition, high_watermarks: Iterable[int]) -> list[Expected]:
    """Return all wrongs that the files show or may show, ``required`` and tolerated."""
    judged = judge(partition, high_watermarks)
    return [wrong for here in judged.views.values() for wrong in _wrongs(judged, here)]


def _wrongs(judged: Judged, here: View) -> Iterator[Expected]:
    for run in here.runs:
        if run.marker is None:
            yield from _stuck(judged, here, run)
        else:
            yield from _first_required(_misjudged(judged, here, run))
    yield from _first_required(_undone(judged, here))
    yield from _undead(judged, here)
    yield from _vanished(judged, here)


def _named(judged: Judged, here: View, anomaly: str, offset: int, key: bytes | None) -> Expected:
    return Expected(
        anomaly=anomaly, topic=judged.partition.topic, partition=judged.partition.number, broker=here.replica.broker,
        offset=offset, key=key, offsets=frozenset({offset}), keys=frozenset({key}),
    )  # fmt: skip


def _first_required(wrongs: Iterable[Expected]) -> Iterator[Expected]:
    met = set()
    for wrong in wrongs:
        yield replace(wrong, required=wrong.required and wrong.producer_id not in met)
        if wrong.required:
            met.add(wrong.producer_id)


def _stuck(judged: Judged, here: View, run: Run) -> Iterator[Expected]:
    first = run.batches[0].base_offset
    txn = judged.txn_of(run.batches[0])
    if not is_below(txn.marker_offset, here.log_end):
        return
    evidence = _stuck_evidence(judged, here, run)
    yield replace(
        _named(judged, here, STUCK_LSO, first, next((r.key for r in run.batches[0].records), None)), evidence=evidence,
        required=evidence != "none" and here.replica.log_start <= first < judged.bound, producer_id=run.producer_id,
        keys=frozenset({None, *(record.key for batch in run.batches for record in batch.records)}),
    )  # fmt: skip


def _stuck_evidence(judged: Judged, here: View, run: Run) -> str:
    first, producer_id = run.batches[0].base_offset, run.producer_id
    end = min(judged.bound, here.log_end)
    control = [batch for view in judged.views.values() for batch in view.control[producer_id]]
    later = [batch for batch in control if first < batch.base_offset < end]
    if any(batch.marker for batch in later):
        return "marker"
    if any(
        entry.producer_id == producer_id and first <= entry.last_offset < end and entry.first_offset <= first
        for other in judged.others(here)
        for entry in other.aborted
    ):
        return "index"
    if later:
        return "remnant"
    if any(batch.producer_epoch > run.batches[0].producer_epoch for batch in run.batches):
        return "epoch"
    gone = judged.nothing_hidden_ahead(here) and any(
        other.covers(first) and first < other.log_end <= here.log_end and first not in other.bases
        for other in judged.others(here)
    )
    return "gone" if gone else "none"


def _misjudged(judged: Judged, here: View, run: Run) -> Iterator[Expected]:
    by_txn: dict[int, list[ModelBatch]] = defaultdict(list)
    for batch in run.batches:
        by_txn[judged.txn_of(batch).number].append(batch)
    believed = run.marker.marker if run.marker else None
    for number, batches in by_txn.items():
        txn = judged.partition.txns[number]
        if txn.outcome == ABORT and believed == COMMIT:
            yield from _served(judged, here, txn, batches)
        elif txn.outcome == COMMIT and believed == ABORT:
            yield from _hidden(judged, here, txn, batches)


def _served(judged: Judged, here: View, txn: Txn, batches: list[ModelBatch]) -> Iterator[Expected]:
    records = [r for batch in batches for r in batch.records if r.offset >= here.replica.log_start]
    if not records:
        return
    deletes = [r.key for r in records if r.key is not None and r.value is None]
    # The broker that keeps records which R deletes may be named in R's place, also without evidence.
    keeping = {broker: at for key in deletes for broker, at in _keeping(judged, here, key).items()}
    if judged.own_marker(here, txn):
        evidence = "marker"
    elif any(spans(entry, txn) for other in judged.others(here) for entry in other.aborted):
        evidence = "index"
    else:
        lasting = [r for r in records if r.key is not None and here.final.get(r.key) == (r.offset, r.value is None)]
        values = [r.key for r in lasting if r.key is not None and r.value is not None]
        alive = {
            broker: at
            for r in lasting
            if r.key and r.value is None
            for broker, at in _alive_elsewhere(judged, here, r.key)
        }
        is_shown = alive or any(judged.only_here(here, key, here.final[key][0]) for key in values)
        evidence = "state" if is_shown else "none"
    first = records[0].offset
    yield replace(
        _named(judged, here, ABORTED_TO_COMMITTED, first, records[0].key),
        effect=VISIBLE if first < here.frozen_at else LATENT, evidence=evidence,
        decided=evidence in {"marker", "index"}, required=evidence != "none" and first < judged.bound,
        producer_id=txn.producer_id, offsets=frozenset(r.offset for r in records) | frozenset(keeping.values()),
        keys=frozenset(r.key for r in records),
    )  # fmt: skip


def _keeping(judged: Judged, here: View, key: bytes) -> dict[int, int]:
    """Return who has a value for a key as its last, and where."""
    return {
        other.replica.broker: other.final[key][0]
        for other in judged.others(here)
        if key in other.final and not other.final[key][1]
    }


def _alive_elsewhere(judged: Judged, here: View, key: bytes) -> Iterator[tuple[int, int]]:
    """Return who has an older value for a key's last that R has deleted, and where; no tombstone can be ahead."""
    deleted_at = here.last_of_keys.get(key, -1)
    if not judged.nothing_hidden_ahead(here):
        return
    for other in judged.others(here):
        at, is_tombstone = other.final.get(key, (-1, True))
        is_alive = not is_tombstone and at < judged.bound and here.covers(at)
        # A shorter log may be a copy of a log that was cleaned for a record beyond its end.
        is_told = deleted_at < other.log_end <= here.log_end and judged.nothing_hidden_ahead(other)
        if is_alive and is_told:
            yield other.replica.broker, at


def _hidden(judged: Judged, here: View, txn: Txn, batches: list[ModelBatch]) -> Iterator[Expected]:
    """Return what R still has of a committed transaction, or its index, and believes aborted."""
    records = [r for batch in batches for r in batch.records if r.offset >= here.replica.log_start]
    spanning = [entry for entry in here.aborted if spans(entry, txn)]
    if not records and not spanning:
        return
    offsets = {r.offset for r in records} | {e.first_offset for e in spanning}
    yield _hidden_txn(judged, here, txn, offsets, is_shown=True, held={r.offset for r in records})


def _hidden_txn(judged: Judged, here: View, txn: Txn, offsets: set[int], *, is_shown: bool, held: set[int]) -> Expected:
    """``is_shown``: R's own files tell that it believes the transaction aborted; ``held``: the records it has of it."""
    written = [w for w in judged.partition.written.values() if w.txn == txn.number]
    alive = {w.key: here.final[w.key][0] for w in written if w.key is not None and _comes_back(judged, here, w)}
    proven = judged.own_marker(here, txn)
    evidence = "marker" if proven else "none"
    if not proven and any(judged.only_here(here, key, offset) for key, offset in alive.items()):
        evidence = "state"
    is_told = all(w.offset in held for w in written if w.key in alive)
    first = min(offsets)
    visible = any(offset < here.frozen_at for offset in alive.values())
    return replace(
        _named(judged, here, COMMITTED_TO_ABORTED, first, next((w.key for w in written if w.offset == first), None)),
        # Without the record nobody can tell whether it was the key's that is alive.
        effect=None if alive and not (visible and is_told) else VISIBLE if visible else LATENT,
        evidence=evidence,
        decided=proven and is_shown,
        required=evidence != "none" and here.replica.log_start <= first < judged.bound,
        producer_id=txn.producer_id,
        offsets=frozenset(offsets | {w.offset for w in written} | set(alive.values()) | {txn.first_offset}),
        keys=frozenset({w.key for w in written} | {None}),
    )


def _comes_back(judged: Judged, here: View, written: Written) -> bool:
    """Tell whether a tombstone is its key's last word and R has an older value for that."""
    if written.key is None or not written.tombstone or judged.last_committed(written.key) is not written:
        return False
    offset, is_tombstone = here.final.get(written.key, (-1, True))
    return not is_tombstone and offset < written.offset and judged.is_settled(written.key, here.log_end)


def _undone(judged: Judged, here: View) -> Iterator[Expected]:
    """Return committed transactions that R hid and of which its log has nothing left."""
    held = {batch.txn for run in here.runs for batch in run.batches}
    lost = set()
    for key in here.final:
        last = judged.last_committed(key)
        if last and last.txn is not None and last.offset in here.replica.received and last.txn not in held:
            lost |= {last.txn} if _comes_back(judged, here, last) else set()
    for txn in judged.partition.txns:
        if txn.outcome == COMMIT and txn.number not in held:
            spanning = {e.first_offset for e in here.aborted if spans(e, txn)}
            if spanning or txn.number in lost:
                offsets = spanning or {txn.first_offset}
                yield _hidden_txn(judged, here, txn, offsets, is_shown=bool(spanning), held=set())


def _undead(judged: Judged, here: View) -> Iterator[Expected]:
    """Return the keys whose tombstone R never had."""
    for key, (offset, is_tombstone) in here.final.items():
        last = judged.last_committed(key)
        if not last or not last.tombstone or is_tombstone or offset >= last.offset:
            continue
        is_known = last.offset in here.replica.received or not judged.is_committed(judged.partition.written[offset])
        if is_known or not judged.is_settled(key, here.log_end):
            continue
        shown = (
            last.offset < judged.bound
            and judged.nothing_hidden_ahead(here)
            and any(other.final.get(key) == (last.offset, True) for other in judged.others(here))
        )
        evidence = "tombstone" if shown else "state" if judged.only_here(here, key, offset) else "none"
        yield replace(
            _named(judged, here, TOMBSTONE_DIVERGENCE, offset, key),
            effect=VISIBLE if offset < here.frozen_at else None,
            evidence=evidence,
            # Which marker ended a transaction is never sure from logs (see `checkers.attribution.blame`).
            decided=shown and last.txn is None,
            required=evidence != "none" and offset < judged.bound,
            offsets=frozenset({offset, last.offset}),
        )


def _vanished(judged: Judged, here: View) -> Iterator[Expected]:
    """Return the keys whose last value R had and cleaned away for an aborted delete of which nothing is left there."""
    for key in judged.by_key.keys() - here.last_of_keys.keys():
        last = judged.last_committed(key)
        if not last or last.tombstone or last.offset not in here.replica.received or not here.covers(last.offset):
            continue
        if not judged.is_settled(key, here.log_end):
            continue
        alive = dict(_alive_elsewhere(judged, here, key))
        yield replace(
            _named(judged, here, ABORTED_TO_COMMITTED, last.offset, key), evidence="state" if alive else "none",
            decided=False, required=bool(alive), offsets=frozenset(written.offset for written in judged.by_key[key]),
        )  # fmt: skip
