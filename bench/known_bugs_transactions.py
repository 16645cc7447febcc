"""Known bugs of the transaction coordinator."""

from __future__ import annotations

from contextlib import closing

from known_bugs_rig import booted
from py4j.protocol import Py4JJavaError

from harness.kafka_api.client_requests import init_producer_id
from harness.kafka_api.connection import Connection
from harness.kafka_api.messages import RetriableError

LAST_EPOCH = 32_766
"""The highest epoch that a producer is given; the next one has another producer id (TransactionMetadata)."""
WRITER = "writer"
INIT_MS = 15_000


def epoch_bumped_twice(version: str) -> tuple[bool, str]:
    """KAFKA-19367: fencing a producer that has an open transaction bumps its epoch twice.

    At the last epoch that overflows, and no producer with this transactional id can start any more. The way there is
    walked by starting the producer again and again.
    """
    with booted(version, settings={"transaction.state.log.num.partitions": "1"}) as bed:
        bed.create_topic("topic", (1,), {})
        bed.cluster.wait(lambda: bed.cluster.admin.has_coordinator(WRITER), "a transaction coordinator")
        with closing(Connection(bed.cluster.runtime.address(1))) as connection:
            while (epoch := _start(connection)) < LAST_EPOCH - 1:
                pass
        first = bed.producer(transactional_id=WRITER)
        first.initTransactions()
        first.beginTransaction()
        first.send(bed.record("topic", "k", "v")).get()
        second = bed.producer(transactional_id=WRITER, max_block_ms=str(INIT_MS))
        try:
            second.initTransactions()
        except Py4JJavaError as error:
            lines = [line for line in bed.log_text(1).splitlines() if "IllegalArgumentException" in line]
            said = lines[-1].strip() if lines else "its log does not say why"
            return True, f"after epoch {epoch + 1}: {error.java_exception.toString()}; the broker: {said}"
        return False, f"a producer was started after one with epoch {epoch + 1} and an open transaction"


def _start(connection: Connection) -> int:
    """Have the coordinator start a producer; return its epoch."""
    try:
        return connection.ask(init_producer_id(WRITER, 600_000)).producer_epoch
    except RetriableError:
        return 0
