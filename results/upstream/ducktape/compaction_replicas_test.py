"""A ducktape test in the form of Kafka's own (``tests/kafkatest/tests/core``): a replica that misses a tombstone."""

from ducktape.errors import TimeoutError
from ducktape.mark import matrix
from ducktape.mark.resource import cluster
from ducktape.tests.test import Test
from ducktape.utils.util import wait_until
from kafkatest.services.kafka import KafkaService, quorum

TOPIC = "compacted"
PARTITION = 0


class CompactionReplicasTest(Test):
    """Replicas of a compacted topic agree after one of them was away for longer than ``delete.retention.ms``."""

    def __init__(self, test_context):
        """Describe three brokers whose cleaners remove a tombstone within a second or two."""
        super().__init__(test_context=test_context)
        self.kafka = KafkaService(
            test_context,
            num_nodes=3,
            zk=None,
            topics={
                TOPIC: {
                    "replica-assignment": "1:3:2",
                    "configs": {
                        "cleanup.policy": "compact",
                        "delete.retention.ms": 300,
                        "segment.ms": 100,
                        "max.compaction.lag.ms": 200,
                        "min.cleanable.dirty.ratio": 0.0001,
                    },
                }
            },
            server_prop_overrides=[
                ["log.cleaner.backoff.ms", "100"],
                ["log.cleaner.dedupe.buffer.size", "2097152"],
                ["producer.id.expiration.ms", "1500"],
                ["producer.id.expiration.check.interval.ms", "300"],
                ["replica.lag.time.max.ms", "2000"],
                ["broker.session.timeout.ms", "3000"],
                ["broker.heartbeat.interval.ms", "1000"],
            ],
        )

    @cluster(num_nodes=3)
    @matrix(metadata_quorum=[quorum.combined_kraft])
    def test_tombstone_of_an_absent_replica(self, metadata_quorum):
        """A replica that returns after a tombstone was compacted away must not have the deleted value."""
        self.kafka.start()
        absent = self.kafka.nodes[1]
        others = [self.kafka.nodes[0], self.kafka.nodes[2]]

        self.produce("k=v")
        wait_until(lambda: self.in_sync() == 3, timeout_sec=30, err_msg="Three replicas were not in sync")
        self.kafka.stop_node(absent, clean_shutdown=False)
        wait_until(lambda: self.in_sync() == 2, timeout_sec=30, err_msg="The stopped broker stayed in the ISR")

        self.produce("k=NULL")
        # A broker that waits for its replicas keeps the tombstone until they are back, and all 20 seconds pass.
        try:
            wait_until(lambda: not any(self.has_key(node) for node in others), timeout_sec=20)
        except TimeoutError:
            self.logger.info("the tombstone was not removed while the broker was away")
        self.kafka.start_node(absent)
        wait_until(lambda: self.in_sync() == 3, timeout_sec=30, err_msg="The returned broker did not enter the ISR")
        wait_until(
            lambda: not any(self.has_key(node) for node in others),
            timeout_sec=20,
            err_msg="The tombstone was never removed",
        )

        wait_until(
            lambda: not self.has_key(absent), timeout_sec=20, err_msg="The returned replica serves the deleted value"
        )

    def produce(self, *lines):
        """Write records, ``key=value``."""
        node = self.kafka.nodes[0]
        text = "\\n".join(lines)
        node.account.ssh(
            f"printf '{text}\\n' | {self.kafka.path.script('kafka-console-producer.sh', node)} --topic {TOPIC} "
            f"--bootstrap-server {self.kafka.bootstrap_servers()} --property parse.key=true --property key.separator== "
            "--property null.marker=NULL"
        )

    def in_sync(self):
        """Return how many replicas are in the ISR."""
        return len(self.kafka.isr_idx_list(TOPIC, PARTITION))

    def has_key(self, node):
        """Write one more record, so that a segment is closed, and return whether the node's files have the key.

        Also true where a cleaner replaced a segment while its file was copied: then nothing is known.
        """
        self.produce("filler=1")
        folder, copy = f"{KafkaService.DATA_LOG_DIR_1}/{TOPIC}-{PARTITION}", "/mnt/kafka/copy"
        dump = f"{self.kafka.path.script('kafka-dump-log.sh', node)} --print-data-log --files"
        lines = node.account.ssh_output(
            f"rm -rf {copy} && mkdir {copy} && find {folder} -name '*.log' -size +0 -exec cp -t {copy} {{}} + && "
            f"for log in {copy}/*; do {dump} $log || exit 1; done && echo complete",
            allow_fail=True,
        ).decode()
        return "key: k payload" in lines or "complete" not in lines
