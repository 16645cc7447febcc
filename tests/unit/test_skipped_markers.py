"""Markers that coordinators report as skipped, and the lines about them in a round."""

from soaked import SMALL

from harness.soak.causes.skipped_marker import parse_line
from harness.soak.play.round import skipped_of

LINE = (
    b"05:01:40.272 [TxnMarkerSenderThread-3] [INFO] kafka.coordinator.transaction.TransactionMarkerChannelManager -"
    b" [Transaction Marker Channel Manager 3]: Couldn't find leader endpoint for partitions %s while trying to send"
    b" transaction markers for %s, these partitions are likely deleted already and hence can be skipped\n"
)


def test_a_coordinator_names_the_partitions_and_the_transactional_id() -> None:
    """Scala prints small sets and large ones differently."""
    for partitions in (b"Set(soak-1-4-4, a.b_c-0)", b"HashSet(soak-1-4-4, a.b_c-0)"):
        assert parse_line(LINE % (partitions, b"soak-1-t12, or not"), 3) == {
            "broker": 3, "partitions": [("soak-1-4", 4), ("a.b_c", 0)], "transactional_id": "soak-1-t12, or not",
        }  # fmt: skip


def test_any_other_line_says_nothing() -> None:
    assert parse_line(b"[INFO] LogCleaner - Beginning cleaning of log soak-1-4\n", 3) is None
    assert parse_line(b"\xff\xfe\n", 3) is None


def test_a_round_has_what_was_left_out_of_its_clients() -> None:
    writer = next(client.transactional_id for client in SMALL.clients if client.transactional_id)
    line = {"partitions": [("__consumer_offsets", 1)], "transactional_id": writer}
    assert skipped_of(SMALL, [line, {**line, "transactional_id": "of another round"}]) == [line]
