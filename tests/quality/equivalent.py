"""Mutants for which no test can fail, with the reason: their change makes no difference."""

from typing import Final

A_CLOSER_LOOK: Final = "what is the same is compared key by key as well, and let go all the same"
NO_DATA_THERE: Final = "an offset is that of a marker or of data, never of both"

DECIDED: Final = "(NOT decided_by IS NOT DISTINCT FROM first_marker OR NOT in_span IS NULL OR NOT passed IS NULL)"
OF_BROKER_AND_REGION: Final = "(rows['broker'] == broker) & (rows['region'] == region)"
COMPARED_ALL_THE_SAME: Final = (
    "beliefs._with_misjudged: base_offset <= span_to AND end_offset >= span_from -> end_offset >= span_from",
    "beliefs._with_misjudged: base_offset <= span_to AND end_offset >= span_from -> base_offset <= span_to",
    f"beliefs._with_misjudged: transactional AND {DECIDED} -> {DECIDED}",
    "candidate_keys.: NOT_COMMITTED | IS_OPEN -> NOT_COMMITTED",
    "packed_spans._rows: ~part['control'] & (part['region'] != BEFORE) -> part['region'] != BEFORE",
    "packed_spans._side_files: row[0] == newest and row[-1] is not None -> row[-1] is not None",
    "packed_spans._rows: ~part['control'] & (part['region'] != BEFORE) -> ~part['control']",
    "candidate_keys._packed: offsets >= segment.bound -> offsets > segment.bound",
    "candidate_keys._packed: (unpacked.key_size >= 0) & (offsets >= segment.log_start) -> unpacked.key_size >= 0",
    "candidate_keys._differ: (placed & NOT_COMMITTED == 0) | (placed & IS_OPEN != 0) -> placed & NOT_COMMITTED == 0",
    "consistent_spans.SortedSpans._with_earlier_marker: self.is_marker | self.is_index -> self.is_marker",
    "consistent_spans.SortedSpans.beyond_chunk: self.is_data | self.is_marker -> self.is_data",
    "unsettled_spans._settled_rows: spans.is_marker & is_settled -> is_settled",
    "unsettled_spans._settled_rows: is_data & spans.is_aborted -> is_data",
    "unsettled_spans._settled_rows: is_data & ~spans.is_aborted -> is_data",
    f"unsettled_spans._settled_rows: {OF_BROKER_AND_REGION} -> rows['broker'] == broker",
)
EQUIVALENT: Final[dict[str, str]] = {
    **dict.fromkeys(COMPARED_ALL_THE_SAME, A_CLOSER_LOOK),
    **dict.fromkeys(
        (
            "packed_spans._plain: part['control'] | part['transactional'] -> part['transactional']",
            "packed_spans.packed: part['control'] | part['transactional'] -> part['transactional']",
        ),
        "control batches of topics have the transactional bit",
    ),
    "packed_spans._rows: facts['log_end'] or 0 -> 0": "offsets rise along a log",
    "beliefs.Beliefs.of: .where('control IS NOT NULL') -> nothing": "rows without data and markers decide nothing",
    "beliefs.Beliefs.of: .where(f\"settled = '{EPOCHS}'\") -> nothing": "no span is outside the range of its epoch",
    **dict.fromkeys((f"blame.: int | str -> {name}" for name in ("int", "str")), "a type"),
    **dict.fromkeys((f"consistent_spans.: int | None -> {name}" for name in ("int", "None")), "a type"),
    "segments.shares: room < segments[index].size_bytes -> room <= segments[index].size_bytes": (
        "a file more or less for a task"
    ),
    "consistent_spans.SortedSpans.of: is_decided & (kinds[decider] == span.ABORTS) -> kinds[decider] == span.ABORTS": (
        "only the outcomes of decided data are read"
    ),
    "unsettled_spans._packed_transactions: .where('problem IS NULL') -> nothing": "a damaged partition is not judged",
    "consistent_spans.cleared_partitions: .where('beliefs IS NULL') -> nothing": "rows with beliefs have no spans",
    "consistent_spans._chunk_rows: spans.is_data & ~spans.is_undecided -> ~spans.is_undecided": "others have no record",
    "consistent_spans._chunk_rows: spans.is_data & ~spans.is_undecided -> spans.is_data": (
        "the order of a shuffle decides which of two beliefs counts, and the right one comes last"
    ),
    "candidate_keys._differ: np.array(ends) > highest -> np.array(ends) >= highest": (
        "a log with that offset does not start after it"
    ),
    "beliefs._with_misjudged: base_offset <= span_to -> base_offset < span_to": NO_DATA_THERE,
    "beliefs._with_misjudged: .where('transactional') -> nothing": "only what is in a transaction is misjudged",
    "beliefs._index_spans: .where('first_offset IS NOT NULL') -> nothing": "such an entry has no marker inside",
    "beliefs._summary: f.col('belief') == belief -> f.col('belief') != belief": "all digests agree only if each does",
    "committed_to_aborted._records: max -> min": "one replica has all records of a transaction end at one marker",
    "doubts._delivery_differs: f = 'poll' AND type = 'ok' -> type = 'ok'": "only polls have records",
    "doubts._delivery_differs: offset < open_from -> offset <= open_from": "what is open is not committed",
    "exposure._presence: max -> min": "a snapshot of a replica has an offset once",
    "exposure.criticals: .where(\"f = 'produce'\") -> nothing": "only what was produced has a partition",
    **dict.fromkeys(
        (
            "removals._written: truth IS NOT DISTINCT FROM 'aborted' -> truth = 'aborted'",
            "judged.undeleted_values: truth IS NOT DISTINCT FROM 'aborted' -> truth = 'aborted'",
        ),
        "an unknown outcome does not count as aborted",
    ),
    "truth.bounded: min -> max #2": "all replicas of a partition are read up to one bound",
    "coverage.EpochCoverage._assumptions: offset <= since_offset -> offset < since_offset": (
        "no offset of the metadata log is that of two records"
    ),
    "removals._removed_before_data: data_at < offset -> data_at <= offset": NO_DATA_THERE,
    "removals._removed_before_data: decided_by > offset -> decided_by >= offset": "that marker is gone",
    "judged._undone_deletes: here_offset < true_offset -> here_offset <= true_offset": "a tombstone is not alive",
    "batch_outcomes.unreplicated_tails: start_offset <= log_last -> start_offset < log_last": "logs keep a last batch",
    "side_files.with_served_aborts: .where('first_marker IS NOT NULL') -> nothing": "no batch is in a span without end",
    "batch_outcomes.unreplicated_tails: newest > other.newest -> newest >= other.newest #2": (
        "one of both logs has a newer epoch than the other"
    ),
    "batch_outcomes.without_unreplicated_tails: .where('first_in_batch') -> nothing": "its rows have the same columns",
    "missed_marker.check: first_marker >= overtaken_at -> first_marker > overtaken_at": NO_DATA_THERE,
    "side_files._indexes: .where('transactional') -> nothing": "no producer of transactions writes what is in none",
    "reduce._judged_keys: .where('broker IS NOT NULL') -> nothing": "what counts keys names no offsets to be looked at",
    "candidate_keys.packed_beliefs: .where('transactional') -> nothing": "no producer of transactions looks it up",
    "segments.span_arrays: count >= _AT_ONCE -> count > _AT_ONCE": "a batch more or less at once",
    "candidate_keys.: NOT_COMMITTED | IS_OPEN -> IS_OPEN": "a key that is open everywhere is let go by the checkers",
    "candidate_keys._distributed: end > start -> end >= start": "an empty share tells nothing",
    "candidate_keys._send: rows >= SEND_ROWS -> rows > SEND_ROWS": "a record more or less at once",
    "candidate_keys.candidate_keys: max -> min": "the same keys in fewer buckets take more memory",
    "judged.undeleted_values: deleted_at < last.offset -> deleted_at <= last.offset": "a value is no tombstone",
    "judged.undeleted_values: open_at < last.offset -> open_at <= last.offset": "what is open is not committed",
    "truth.differing_keys: truths, left -> inner": "whatever a replica holds below the bound is known",
    "truth.written_records: .where('offset IS NOT NULL') -> nothing": "what has no offset lies nowhere below the bound",
    "unexplained._states: .where(\"belief = 'open'\") -> nothing": (
        "where the true record is believed committed, what is believed later is aborted in truth, or not known"
    ),
}
